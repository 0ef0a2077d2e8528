#include "swap/store/zero_fill.h"
#include "aio/words/error.h"

#include "tests/aio/fakes/scratch.h"
#include "tests/swap/power/power_device.h"

#include <gtest/gtest.h>

#include <fcntl.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace penstock::testing {
namespace {

constexpr std::uint64_t file_bytes = 10 << 20;  // more than one piece of 4 MiB for each lane

class ZeroFillTest : public ::testing::Test {
   protected:
    ZeroFillTest() {
        for (const char* name : {"one", "two"}) {
            std::ofstream(scratch.file(name)) << std::string(file_bytes, 'x');
            files.emplace_back(AT_FDCWD, scratch.file(name), scratch.file(name), aio::FileOptions{});
        }
    }
    std::string text(const std::string& name) const {
        std::string bytes(file_bytes, '\0');
        std::ifstream(scratch.file(name), std::ios::binary)
            .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        return bytes;
    }
    void fill(const std::vector<store::ZeroRange>& ranges, const store::WorkProgress& progress = {}) {
        fill_with_zeros(io, ranges, progress, [] {});
    }

    TemporaryDirectory scratch;
    std::vector<aio::File> files;
    PowerDevice device{1};
    aio::Io io{device.backend(), {}};
};

TEST_F(ZeroFillTest, CoversItsRangesExactlyAndDurably) {
    constexpr std::uint64_t begin = 8192;
    constexpr std::uint64_t bytes = (9 << 20) + 4096;
    fill({{&files[0], begin, bytes}, {&files[1], 0, 4096}});
    device.cut(Loss::everything);
    std::string expected(file_bytes, 'x');
    std::fill_n(expected.begin() + begin, bytes, '\0');
    EXPECT_EQ(text("one"), expected);
    expected.assign(file_bytes, 'x');
    std::fill_n(expected.begin(), 4096, '\0');
    EXPECT_EQ(text("two"), expected);
}

TEST_F(ZeroFillTest, AnErrorEndsItWithTheFilesName) {
    for (const auto& [errno_value, code] :
         {std::pair(ENOSPC, ExitCode::does_not_fit), std::pair(EIO, ExitCode::storage)}) {
        device.hook = [errno_value = errno_value](const aio::Attempt& attempt, const std::string&) {
            return attempt.offset_bytes >= (5 << 20) ? std::optional<std::int32_t>(-errno_value) : std::nullopt;
        };
        try {
            fill({{&files[0], 0, file_bytes}, {&files[1], 0, 4096}});
            FAIL() << "the error was not seen";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), code);
            EXPECT_NE(std::string(error.what()).find(scratch.file("one")), std::string::npos) << error.what();
        }
        EXPECT_TRUE(io.idle());
    }
}

TEST_F(ZeroFillTest, WhatProgressThrowsEndsItWhenNothingIsInFlight) {
    int calls = 0;
    const auto progress = [&](std::uint64_t, std::uint64_t) {
        ++calls;
        throw std::runtime_error("stopped by the user");
    };
    EXPECT_THROW(fill({{&files[0], 0, file_bytes}}, progress), std::runtime_error);
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(io.idle());
}

}  // namespace
}  // namespace penstock::testing
