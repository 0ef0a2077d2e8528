// The half of torch_optimizer.h for a build without torch.
#include "aio/words/check.h"
#include "bench/optimizer/torch_optimizer.h"

namespace penstock::bench {

std::string torch_optimizer_name() {
    return {};
}

std::unique_ptr<MemoryWork> make_torch_adamw(std::uint64_t /*numel*/) {
    PENSTOCK_CHECK(false, "this build has no torch");
}

}  // namespace penstock::bench
