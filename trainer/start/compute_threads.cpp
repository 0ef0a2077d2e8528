#include "trainer/start/compute_threads.h"

#include "trainer/start/room_to_compute.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdint>
#include <latch>
#include <thread>
#include <vector>

namespace penstock::trainer {
namespace {

constexpr std::uint64_t usual_stack_bytes = 8ULL << 20;  // libgomp does not always take those that are kept

// So many at once, whose stacks the C library keeps for the next ones.
void find_room_for(unsigned threads) {
    std::latch all_are_there(1);
    std::vector<std::jthread> made;
    try {
        for (unsigned i = 0; i < threads; ++i) made.emplace_back([&] { all_are_there.wait(); });
    } catch (...) {
        all_are_there.count_down();
        throw;
    }
    all_are_there.count_down();
}

}  // namespace

void make_compute_threads(unsigned count) {
    // As many pieces of work as threads; at::parallel_for() would be a plain loop here, where nothing is built for
    // OpenMP. Its memory comes first: what room there is for threads stays.
    at::Tensor work = at::empty({static_cast<std::int64_t>(count) * at::internal::GRAIN_SIZE}, at::kByte);
    find_room_for(count - 1);
    check_room_to_compute((count - 1) * usual_stack_bytes);
    at::set_num_threads(static_cast<int>(count));
    work.fill_(1);
}

}  // namespace penstock::trainer
