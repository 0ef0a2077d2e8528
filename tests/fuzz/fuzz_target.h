// What is fuzzed: a function from any bytes to nothing that aborts when a promise is broken. libFuzzer runs it
// (entry.cpp, needs clang); tests_fuzz runs it on the kept corpus and on seeded changes of it (any compiler).
#pragma once

#include <cstddef>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::fuzz {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

// Changes some bytes without knowing what they mean: libFuzzer's own mutation, or a few random edits.
using RawMutation = std::function<void(Bytes&)>;

struct FuzzTarget {
    const char* name;                         // and of its folder of kept inputs
    void (*run)(std::span<const std::byte>);  // one thread; leaves nothing behind
    // Changes an input so that it still gets past hashes and framing, most of the time. Null: RawMutation is enough.
    void (*mutate)(Bytes&, Random&, const RawMutation&);
    std::vector<Bytes> (*seeds)();  // inputs that reach the inside; the corpus grew from them
};

extern const FuzzTarget lock_text_target;
extern const FuzzTarget machine_memory_target;
extern const FuzzTarget manifest_target;
extern const FuzzTarget profile_target;
extern const FuzzTarget recovery_target;
extern const FuzzTarget store_target;

std::span<const FuzzTarget* const> fuzz_targets();

inline Bytes bytes_of(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

inline std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace penstock::fuzz
