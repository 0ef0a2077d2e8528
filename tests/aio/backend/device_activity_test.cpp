#include "aio/backend/device_activity.h"

#include "tests/temporary_directory.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace penstock::aio {
namespace {

TEST(DeviceActivity, CountsWhatADeviceWrites) {
    const TemporaryDirectory directory;
    struct stat status {};
    ASSERT_EQ(::stat(directory.path().c_str(), &status), 0);
    const auto before = sectors_written(status.st_dev);
    if (!before) GTEST_SKIP() << "the kernel keeps no count for the file system of " << directory.path();
    const int file = ::open((directory / "file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(file, 0);
    const std::string bytes(1 << 20, 'x');
    EXPECT_EQ(::write(file, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(::fsync(file), 0);
    ::close(file);
    EXPECT_GE(sectors_written(status.st_dev).value(), *before + bytes.size() / 512);
}

TEST(DeviceActivity, KnowsNothingOfWhatIsNoBlockDevice) {
    EXPECT_EQ(sectors_written(0), std::nullopt);
    struct stat status {};
    ASSERT_EQ(::stat("/proc", &status), 0);
    EXPECT_EQ(sectors_written(status.st_dev), std::nullopt);
}

}  // namespace
}  // namespace penstock::aio
