// torch's fused AdamW in this process, beside ours: the library itself, without Python around it.
#pragma once

#include "bench/harness/memory_work.h"

#include <cstdint>
#include <memory>
#include <string>

namespace penstock::bench {

// "torch 2.11.0 fused AdamW in C++"; empty in a build without torch.
std::string torch_optimizer_name();

// fp32 parameter, gradient and moments in huge pages, as those of ours; 28 bytes per element. It runs on as many of
// torch's own threads as the workers have. REQUIRES: a build with torch.
std::unique_ptr<MemoryWork> make_torch_adamw(std::uint64_t numel);

}  // namespace penstock::bench
