#include "aio/backend/registered.h"

#include <gtest/gtest.h>

#include <array>

namespace penstock::aio {
namespace {

std::array<std::byte, 64> memory;

std::span<std::byte> piece(std::size_t begin, std::size_t bytes) {
    return std::span(memory).subspan(begin, bytes);
}

TEST(RegisteredRanges, FindsThePlaceOfWhatLiesWhollyInside) {
    RegisteredRanges ranges;
    EXPECT_EQ(ranges.place_of(memory.data(), 1), RegisteredRanges::none);
    ranges.set(std::array{piece(32, 16), piece(0, 8), piece(8, 8)});  // a hole from 16 to 32
    struct Case {
        std::size_t begin;
        std::uint32_t bytes;
        int place;
    };
    constexpr std::array cases{Case{32, 16, 0},  Case{0, 8, 1},    Case{8, 8, 2},   Case{47, 1, 0},  Case{15, 1, 2},
                               Case{16, 1, -1},  Case{31, 2, -1},  Case{47, 2, -1}, Case{48, 1, -1}, Case{4, 8, -1},
                               Case{15, 18, -1}, Case{0, 64, -1},  Case{40, 8, 0},  Case{7, 1, 1},   Case{63, 1, -1},
                               Case{20, 4, -1},  Case{33, ~0U, -1}};
    for (const Case& each : cases) {  // in this order, and each of them after itself
        for (int i = 0; i < 2; ++i) {
            EXPECT_EQ(ranges.place_of(memory.data() + each.begin, each.bytes), each.place)
                << each.begin << " " << each.bytes;
        }
    }
    EXPECT_EQ(ranges.place_of(nullptr, 0), RegisteredRanges::none);
}

TEST(RegisteredRanges, ForgetsWhatWasThereBefore) {
    RegisteredRanges ranges;
    ranges.set(std::array{piece(0, 8), piece(8, 8)});
    EXPECT_EQ(ranges.place_of(memory.data() + 8, 8), 1);
    ranges.set(std::array{piece(8, 8)});
    EXPECT_EQ(ranges.place_of(memory.data() + 8, 8), 0);
    EXPECT_EQ(ranges.place_of(memory.data(), 8), RegisteredRanges::none);
    ranges.clear();
    EXPECT_TRUE(ranges.empty());
    EXPECT_EQ(ranges.place_of(memory.data() + 8, 8), RegisteredRanges::none);
}

TEST(RegisteredFiles, FindsThePlaceOfAnIdAndOfNoOther) {
    RegisteredFiles files;
    EXPECT_EQ(files.place_of(7), RegisteredFiles::none);
    files.set(std::array{RegisteredFile{3, 9}, RegisteredFile{5, 2}, RegisteredFile{4, 7}});
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(files.place_of(9), 0);
        EXPECT_EQ(files.place_of(2), 1);
        EXPECT_EQ(files.place_of(7), 2);
        for (const std::uint64_t other : {0, 1, 3, 4, 5, 8, 10})
            EXPECT_EQ(files.place_of(other), RegisteredFiles::none);
    }
    files.set(std::array{RegisteredFile{4, 7}});
    EXPECT_EQ(files.place_of(7), 0);
    EXPECT_EQ(files.place_of(9), RegisteredFiles::none);
}

TEST(RegisteredDeathTest, RefusesWhatCannotBeToldApart) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    RegisteredRanges ranges;
    RegisteredFiles files;
    EXPECT_DEATH(ranges.set(std::array{piece(0, 9), piece(8, 8)}), "overlap");
    EXPECT_DEATH(ranges.set(std::array{piece(0, 0)}), "a range of 0 bytes");
    EXPECT_DEATH(files.set(std::array{RegisteredFile{3, 0}}), "is not open");
    EXPECT_DEATH(files.set(std::array{RegisteredFile{3, 2}, RegisteredFile{4, 2}}), "given twice");
    const std::vector<RegisteredFile> many(max_registered + 1, RegisteredFile{3, 2});
    EXPECT_DEATH(files.set(many), "more than 1024");
}

}  // namespace
}  // namespace penstock::aio
