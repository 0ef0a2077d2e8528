// Memory that compute needs beside the pool, where limits of the process bound it.
#pragma once

#include <cstdint>

namespace penstock::trainer {

// Under a limit on data segments or address space: whether `activation_bytes` and what torch's
// libraries need for themselves find room. Throws Error (out_of_memory) that names the limit: libraries that find none
// do not all say so.
void check_room_to_compute(std::uint64_t activation_bytes);

}  // namespace penstock::trainer
