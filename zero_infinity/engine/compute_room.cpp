#include "zero_infinity/engine/compute_room.h"

#include "pinned_pool/budget.h"
#include "zero_infinity/device/device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>

#include <algorithm>

namespace penstock::engine {
namespace {

constexpr int times_its_cost = 50;
// By so much the heap grows at once where freed memory is kept (trainer/environment.cpp); elsewhere by less.
constexpr std::uint64_t untouched_bytes = 64ULL << 20;

std::uint64_t host_room() {
    return pool::MachineMemory::read().available_bytes + free_heap_bytes();
}

std::uint64_t unused_by_torch(const c10::Device& device) {
    auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
    if (allocator == nullptr || !allocator->initialized()) return 0;
    const auto stats = allocator->getDeviceStats(device.index());
    constexpr auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return static_cast<std::uint64_t>(stats.reserved_bytes.at(all).current - stats.active_bytes.at(all).current);
}

std::uint64_t gpu_room(const c10::Device& device) {
    const zero::DeviceOptions options{.kind = zero::DeviceKind::cuda, .index = device.index()};
    return zero::free_cuda_bytes(options) + unused_by_torch(device);
}

}  // namespace

std::uint64_t free_heap_bytes() {
    const struct mallinfo2 heap = ::mallinfo2();
    return heap.fordblks - std::min<std::uint64_t>(heap.keepcost, untouched_bytes);
}

std::uint64_t LastingRoom::operator()(std::uint64_t reserve_bytes) {
    const Clock::time_point start = Clock::now();
    if (left_ < reserve_bytes || start >= good_until_) {
        left_ = look_();
        const Clock::time_point end = Clock::now();
        good_until_ = end + times_its_cost * (end - start);
    }
    const std::uint64_t room = left_;
    left_ -= std::min(left_, reserve_bytes);
    return room;
}

Room machine_room(const c10::Device& device) {
    if (device.is_cpu()) return LastingRoom(host_room);
    return LastingRoom([device] { return gpu_room(device); });
}

}  // namespace penstock::engine
