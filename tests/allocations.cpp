#include "tests/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> calls{0};

struct Refusals {
    std::uint64_t seen = 0;
    std::uint64_t from = 0;
    std::uint64_t count = 0;
};
thread_local Refusals refusals;

// Whether this call is to fail.
bool counted() noexcept {
    calls.fetch_add(1);
    const std::uint64_t number = refusals.seen++;
    return number >= refusals.from && number - refusals.from < refusals.count;
}

}  // namespace

// Not inlined: the compiler would see through one half and warn that it does not match the other.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    if (counted()) throw std::bad_alloc();
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*quiet*/) noexcept {
    return counted() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
    if (counted()) throw std::bad_alloc();
    const auto unit = static_cast<std::size_t>(alignment);
    if (void* memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
    std::free(memory);
}

namespace penstock::testing {

std::uint64_t allocations() noexcept {
    return calls.load();
}

void refuse_allocations(std::uint64_t later, std::uint64_t count) noexcept {
    refusals = {.seen = 0, .from = later, .count = count};
}

std::uint64_t allocations_since_refusal() noexcept {
    return refusals.seen;
}

}  // namespace penstock::testing
