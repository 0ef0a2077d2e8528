// The half of failure.h for a program without torch.
#include "trainer/cli/failure.h"

namespace penstock::trainer {

Failure current_failure() noexcept {
    return failure_without_torch();
}

}  // namespace penstock::trainer
