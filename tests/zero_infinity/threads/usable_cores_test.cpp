#include "zero_infinity/threads/usable_cores.h"

#include "tests/temporary_directory.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace penstock::zero {
namespace {

// A machine made of files; the affinity mask is this process's own.
class UsableCoresTest : public ::testing::Test {
   protected:
    void put(const std::string& path, const std::string& text) const {
        const std::filesystem::path whole = root_ / path;
        std::filesystem::create_directories(whole.parent_path());
        std::ofstream(whole) << text;
    }
    UsableCores read() const { return UsableCores::read(root_.path()); }

    const TemporaryDirectory root_;
    const unsigned all_ = UsableCores::read(root_ / "nowhere").count;
};

TEST_F(UsableCoresTest, AreTheProcessorsOfTheAffinityMask) {
    EXPECT_GE(all_, 1U);
    cpu_set_t before;
    ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
    EXPECT_EQ(all_, static_cast<unsigned>(CPU_COUNT(&before)));
    unsigned narrowed = 0;
    std::string limited_by;
    std::thread([&] {  // a thread's mask is its own
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int processor = 0; processor < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++processor)
            if (CPU_ISSET(processor, &before)) CPU_SET(processor, &one);
        ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
        narrowed = read().count;
        limited_by = read().limited_by;
    })
        .join();
    EXPECT_EQ(narrowed, 1U);
    if (all_ > 1) {
        EXPECT_EQ(limited_by, "the affinity mask");
    }
}

TEST_F(UsableCoresTest, AreNotMoreThanTheTightestQuotaOfVersion2AllowsRoundedUp) {
    put("/proc/self/cgroup", "0::/pod/job\n");
    put("/sys/fs/cgroup/pod/job/cpu.max", "max 100000\n");
    EXPECT_EQ(read().count, all_);
    put("/sys/fs/cgroup/pod/cpu.max", "40000 100000\n");
    EXPECT_EQ(read().count, 1U);
    if (all_ > 1) {
        EXPECT_EQ(read().limited_by, "cgroup limit /sys/fs/cgroup/pod/cpu.max");
    }
    put("/sys/fs/cgroup/pod/cpu.max", "900000000 100000\n");
    EXPECT_EQ(read().count, all_);
}

TEST_F(UsableCoresTest, ObeyVersion1) {
    put("/proc/self/cgroup", "5:cpu,cpuacct:/job\n3:memory:/other\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(read().count, all_);
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n");
    EXPECT_EQ(read().count, 1U);
}

TEST_F(UsableCoresTest, PassOverWhatIsNoQuota) {
    put("/proc/self/cgroup", "0::/job\nnonsense\n5:cpu\n");
    for (const char* text : {"", "x y\n", "0 100000\n", "100000 0\n", "-5 -5\n", "nan nan\n"}) {
        put("/sys/fs/cgroup/job/cpu.max", text);
        EXPECT_EQ(read().count, all_) << text;
    }
}

}  // namespace
}  // namespace penstock::zero
