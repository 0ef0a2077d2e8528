#include "zero_infinity/engine/room/compute_room.h"

#include "pinned_pool/budget.h"
#include "zero_infinity/device/device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>

#include <algorithm>

namespace penstock::engine {
namespace {

constexpr int times_its_cost = 50;

// By so much the heap grows at once where freed memory is kept (trainer/environment.cpp).
constexpr std::uint64_t heap_growth_bytes = 64ULL << 20;

// What the C library has free in its heap is not counted as it lies: a large tensor finds no room between small ones.
// Its pages go back to the system where room is short; when the heap comes to use them, they are new. For the same
// reason the heap grows by more than what is allocated: without this margin a run within a cgroup of half of what it
// wanted was killed.
std::uint64_t host_room(std::uint64_t reserve_bytes) {
    const std::uint64_t margin = heap_growth_bytes + reserve_bytes / 4;
    std::uint64_t available = pool::MachineMemory::read().available_bytes;
    if (available < reserve_bytes + margin) {
        ::malloc_trim(0);
        available = pool::MachineMemory::read().available_bytes;
    }
    return available - std::min(available, margin);
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

std::uint64_t LastingRoom::operator()(std::uint64_t reserve_bytes) {
    const Clock::time_point start = Clock::now();
    if (left_ < reserve_bytes || start >= good_until_) {
        left_ = look_(reserve_bytes);
        const Clock::time_point end = Clock::now();
        good_until_ = end + times_its_cost * (end - start);
    }
    const std::uint64_t room = left_;
    left_ -= std::min(left_, reserve_bytes);
    return room;
}

LookForRoom machine_room(const c10::Device& device) {
    if (device.is_cpu()) return LastingRoom(host_room);
    return LastingRoom([device](std::uint64_t) { return gpu_room(device); });
}

}  // namespace penstock::engine
