// The targets without libFuzzer: on the kept corpus, on their seeds, and on seeded changes of both.
#include "tests/fuzz/fuzz_target.h"
#include "tests/seeds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace penstock::fuzz {
namespace {

std::vector<Bytes> inputs_of(const FuzzTarget& target) {
    std::vector<std::filesystem::path> paths;
    const std::filesystem::path folder = std::filesystem::path(PENSTOCK_CORPUS) / target.name;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<Bytes> inputs = target.seeds();
    for (const auto& path : paths) {
        std::ifstream in(path, std::ios::binary);
        inputs.push_back(bytes_of(std::string{std::istreambuf_iterator<char>(in), {}}));
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

class Fuzz : public ::testing::TestWithParam<const FuzzTarget*> {};

TEST_P(Fuzz, TheKeptCorpusBreaksNoPromise) {
    for (const Bytes& input : inputs_of(*GetParam())) GetParam()->run(input);
}

// Each run begins at an input of its own choice and changes it a few times.
TEST_P(Fuzz, SeededChangesBreakNoPromise) {
    const FuzzTarget& target = *GetParam();
    const std::vector<Bytes> inputs = inputs_of(target);
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(100); ++seed) {
        SCOPED_TRACE(replay(seed));
        Random random(seed);
        Bytes bytes = inputs[random() % inputs.size()];
        const RawMutation raw = [&random](Bytes& part) { edit(part, random); };
        for (std::uint64_t i = 0, count = random() % 8 + 1; i < count; ++i) {
            if (target.mutate != nullptr) {
                target.mutate(bytes, random, raw);
            } else {
                raw(bytes);
            }
        }
        target.run(bytes);
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, ::testing::ValuesIn(fuzz_targets().begin(), fuzz_targets().end()),
                         [](const auto& one) { return std::string(one.param->name); });

}  // namespace
}  // namespace penstock::fuzz
