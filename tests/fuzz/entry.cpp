// What libFuzzer calls. Compiled once per target, which PENSTOCK_FUZZ_TARGET names.
#include "tests/fuzz/fuzz_target.h"

#include <algorithm>
#include <cstdint>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t bytes, std::size_t max_bytes);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t bytes, std::size_t max_bytes,
                                               unsigned seed);

// A kernel before 6.7 lists all memory in use whenever a store opens.
extern "C" const char* __asan_default_options();
const char* __asan_default_options() {
    return "quarantine_size_mb=4";
}

namespace {

constexpr const penstock::fuzz::FuzzTarget& target = penstock::fuzz::PENSTOCK_FUZZ_TARGET;

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    target.run(std::as_bytes(std::span(data, bytes)));
    return 0;
}

std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t bytes, std::size_t max_bytes, unsigned seed) {
    if (target.mutate == nullptr) return LLVMFuzzerMutate(data, bytes, max_bytes);
    const auto raw = [max_bytes](penstock::fuzz::Bytes& part) {
        const std::size_t before = part.size();
        part.resize(std::max(before, max_bytes));
        part.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(part.data()), before, max_bytes));
    };
    const auto input = std::as_bytes(std::span(data, bytes));
    penstock::fuzz::Bytes changed(input.begin(), input.end());
    penstock::fuzz::Random random(seed);
    target.mutate(changed, random, raw);
    if (changed.empty() || changed.size() > max_bytes) return LLVMFuzzerMutate(data, bytes, max_bytes);
    std::copy_n(reinterpret_cast<const std::uint8_t*>(changed.data()), changed.size(), data);
    return changed.size();
}
