// The targets without libFuzzer: on the kept corpus, on their seeds, and on seeded changes of both.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/last_words.h"
#include "tests/seeds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

namespace penstock::fuzz {
namespace {

struct Input {
    std::string name;
    Bytes bytes;
};

std::vector<Input> seeds_of(const FuzzTarget& target) {
    std::vector<Input> inputs;
    for (Bytes& seed : target.seeds())
        inputs.push_back({fmt::format("seed {} of the target", inputs.size()), std::move(seed)});
    return inputs;
}

std::vector<Input> inputs_of(const FuzzTarget& target) {
    std::vector<std::filesystem::path> paths;
    const std::filesystem::path folder = std::filesystem::path(PENSTOCK_CORPUS) / target.name;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<Input> inputs = seeds_of(target);
    for (const auto& path : paths) {
        std::ifstream in(path, std::ios::binary);
        inputs.push_back({path.string(), bytes_of(std::string{std::istreambuf_iterator<char>(in), {}})});
    }
    return inputs;
}

// A stand-in for libFuzzer's mutation: bits, bytes, insertions and cuts.
void edit(Bytes& bytes, Random& random) {
    const std::size_t at = bytes.empty() ? 0 : random() % bytes.size();
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (bytes.empty() ? 2 : random() % 4) {
        case 0:
            bytes[at] ^= static_cast<std::byte>(1U << random() % 8);
            break;
        case 1:
            bytes[at] = static_cast<std::byte>(random());
            break;
        case 2:
            bytes.insert(place, random() % 8 + 1, static_cast<std::byte>(random()));
            break;
        default:
            bytes.erase(place, place + static_cast<std::ptrdiff_t>(std::min(bytes.size() - at, random() % 8 + 1)));
    }
}

// As under libFuzzer, an exception ends the process; the words are outside of what it unwinds.
void run(const FuzzTarget& target, const Bytes& bytes) noexcept {
    target.run(bytes);
}

// A broken promise aborts: which it was is said even then.
void run_kept(const FuzzTarget& target, const std::vector<Input>& inputs) {
    for (const Input& input : inputs) {
        const LastWords words(fmt::format("fuzz target {} ends here on {}", target.name, input.name));
        run(target, input.bytes);
    }
}

// Begins at an input of its own choice and changes it a few times.
void run_changed(const FuzzTarget& target, const std::vector<Input>& inputs, std::uint64_t seed) {
    Random random(seed);
    const Input& input = inputs[random() % inputs.size()];
    const LastWords words(
        fmt::format("fuzz target {} ends here on changes of {}; {}", target.name, input.name, replay(seed)));
    Bytes bytes = input.bytes;
    const RawMutation raw = [&random](Bytes& part) { edit(part, random); };
    for (std::uint64_t i = 0, count = random() % 8 + 1; i < count; ++i) {
        if (target.mutate != nullptr) {
            target.mutate(bytes, random, raw);
        } else {
            raw(bytes);
        }
    }
    run(target, bytes);
}

class Fuzz : public ::testing::TestWithParam<const FuzzTarget*> {};

TEST_P(Fuzz, TheKeptCorpusBreaksNoPromise) {
    run_kept(*GetParam(), inputs_of(*GetParam()));
}

TEST_P(Fuzz, SeededChangesBreakNoPromise) {
    const std::vector<Input> inputs = inputs_of(*GetParam());
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(100); ++seed) {
        SCOPED_TRACE(replay(seed));
        run_changed(*GetParam(), inputs, seed);
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, ::testing::ValuesIn(fuzz_targets().begin(), fuzz_targets().end()),
                         [](const auto& one) { return std::string(one.param->name); });

// A target that breaks its promise on whatever it is given, in the way that `breaks` breaks it.
FuzzTarget breaking(void (*breaks)(std::span<const std::byte>)) {
    return {.name = "breaking", .run = breaks, .mutate = nullptr, .seeds = [] {
                return std::vector<Bytes>{bytes_of("ab"), bytes_of("cd")};
            }};
}

TEST(FuzzReplayDeathTest, ABrokenPromiseIsToldWithItsTargetAndSeed) {
    const FuzzTarget target = breaking([](std::span<const std::byte>) { std::abort(); });
    EXPECT_EXIT(run_changed(target, seeds_of(target), 7), ::testing::KilledBySignal(SIGABRT),
                "fuzz target breaking ends here on changes of seed [01] of the target; replay: .*"
                "FuzzReplayDeathTest.* --seed=7");
    EXPECT_EXIT(run_kept(target, seeds_of(target)), ::testing::KilledBySignal(SIGABRT),
                "fuzz target breaking ends here on seed 0 of the target");
}

TEST(FuzzReplayDeathTest, ExceptionsAndFaultsAreBrokenPromises) {
    const FuzzTarget throwing = breaking([](std::span<const std::byte>) { throw 1; });
    EXPECT_EXIT(run_changed(throwing, seeds_of(throwing), 8), ::testing::KilledBySignal(SIGABRT), "--seed=8");
    const FuzzTarget faulting = breaking([](std::span<const std::byte>) { ::raise(SIGSEGV); });
    EXPECT_EXIT(run_changed(faulting, seeds_of(faulting), 9), ::testing::KilledBySignal(SIGSEGV), "--seed=9");
}

}  // namespace
}  // namespace penstock::fuzz
