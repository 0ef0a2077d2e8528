#include "zero_infinity/measure/measured_device.h"

#include "aio/words/error.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>

namespace penstock::testing {
namespace {

zero::DeviceQuestion small_question(std::vector<std::string> directories) {
    return {
        .directories = std::move(directories), .limits = {}, .backend = {}, .file_bytes = 8U << 20, .seconds = 0.01};
}

TEST(MeasuredDevice, HasRatesOfAllDirectoriesAndLeavesNothing) {
    const TemporaryDirectory parent;
    std::filesystem::create_directory(parent / "a");
    const zero::MeasuredDevice device = zero::measure_device(small_question({parent / "a", parent / "not there/yet"}));
    EXPECT_GT(device.rates.read, 0);
    EXPECT_GT(device.rates.write, 0);
    EXPECT_GT(device.rates.both, 0);
    EXPECT_GT(device.driver_per_byte, 0);
    EXPECT_GT(device.flush, 0);
    for (const double kept : {device.contention.compute, device.contention.device}) {
        EXPECT_GT(kept, 0);
        EXPECT_LE(kept, 1);
    }
    EXPECT_EQ(device.places, (std::vector<std::string>{parent / "a", parent.path()}));
    EXPECT_TRUE(std::filesystem::is_empty(parent / "a"));
    EXPECT_FALSE(std::filesystem::exists(parent / "not there"));
}

TEST(MeasuredDevice, ADirectoryThatTakesNoFileIsNamed) {
    try {
        zero::measure_device(small_question({"/proc/self"}));
        FAIL() << "/proc took a file";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("/proc/self"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("8 MiB"), std::string::npos) << error.what();
    }
}

// As a quota would have it: nothing is written, and nothing stays.
TEST(MeasuredDevice, ADirectoryWithoutRoomIsNamedWithTheRoomThatIsNeeded) {
    const TemporaryDirectory directory;
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit narrow{.rlim_cur = 1U << 20, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &narrow), 0);
    std::string refused;
    try {
        zero::measure_device(small_question({directory.path()}));
    } catch (const Error& error) {
        refused = error.what();
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    EXPECT_NE(refused.find(directory.path()), std::string::npos) << refused;
    EXPECT_NE(refused.find("8 MiB"), std::string::npos) << refused;
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace penstock::testing
