#include "pinned_pool/budget.h"
#include "tests/aio/scratch.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

// A machine made of files.
class Machine {
   public:
    Machine() { put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:          10 kB\nMemAvailable:    800 kB\n"); }
    void put(const std::string& path, const std::string& text) {
        const std::filesystem::path whole = root() + path;
        std::filesystem::create_directories(whole.parent_path());
        std::ofstream(whole) << text;
    }
    std::string root() const { return directory_.file("machine"); }
    MachineMemory read() const { return MachineMemory::read(root()); }

   private:
    ScratchDirectory directory_;
};

TEST(MachineMemory, IsFreeRamWithoutCgroups) {
    const Machine machine;
    EXPECT_EQ(machine.read().available_bytes, 800U * 1024);
    EXPECT_EQ(machine.read().limited_by, "free RAM");
}

TEST(MachineMemory, ReadsVersion2AndCountsInactivePageCacheAsRoom) {
    Machine machine;
    machine.put("/proc/self/cgroup", "0::/user/job\n");
    machine.put("/sys/fs/cgroup/user/job/memory.max", "500000\n");
    machine.put("/sys/fs/cgroup/user/job/memory.current", "400000\n");
    machine.put("/sys/fs/cgroup/user/job/memory.stat", "anon 1\nfile 300000\ninactive_file 150000\nactive_file 2\n");
    EXPECT_EQ(machine.read().available_bytes, 250000U);
    EXPECT_EQ(machine.read().limited_by, "cgroup limit /sys/fs/cgroup/user/job/memory.max");
}

TEST(MachineMemory, TakesTheTightestAncestor) {
    Machine machine;
    machine.put("/proc/self/cgroup", "0::/user/job\n");
    machine.put("/sys/fs/cgroup/user/job/memory.max", "max\n");
    machine.put("/sys/fs/cgroup/user/job/memory.current", "1000\n");
    machine.put("/sys/fs/cgroup/user/memory.max", "300000\n");
    machine.put("/sys/fs/cgroup/user/memory.current", "100000\n");
    EXPECT_EQ(machine.read().available_bytes, 200000U);
    EXPECT_EQ(machine.read().limited_by, "cgroup limit /sys/fs/cgroup/user/memory.max");
}

TEST(MachineMemory, ReadsVersion1) {
    Machine machine;
    machine.put("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n1:cpu:/\n0::/\n");
    machine.put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "700000\n");
    machine.put("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "300000\n");
    machine.put("/sys/fs/cgroup/memory/docker/abc/memory.stat", "inactive_file 7\ntotal_inactive_file 100000\n");
    machine.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    machine.put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "999999\n");
    EXPECT_EQ(machine.read().available_bytes, 500000U);
    EXPECT_EQ(machine.read().limited_by, "cgroup limit /sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes");
}

TEST(MachineMemory, UsesTheRootWhereTheHostsPathIsNotVisible) {
    Machine machine;
    machine.put("/proc/self/cgroup", "0::/host/path/of/the/container\n");
    machine.put("/sys/fs/cgroup/memory.max", "400000\n");
    machine.put("/sys/fs/cgroup/memory.current", "100000\n");
    EXPECT_EQ(machine.read().available_bytes, 300000U);
    EXPECT_EQ(machine.read().limited_by, "cgroup limit /sys/fs/cgroup/memory.max");
}

TEST(MachineMemory, GivesNothingWhenTheGroupIsOverItsLimit) {
    Machine machine;
    machine.put("/proc/self/cgroup", "0::/\n");
    machine.put("/sys/fs/cgroup/memory.max", "1000\n");
    machine.put("/sys/fs/cgroup/memory.current", "5000\n");
    EXPECT_EQ(machine.read().available_bytes, 0U);
}

TEST(MachineMemory, SurvivesLinesThatAreNoGroups) {
    Machine machine;
    machine.put("/proc/self/cgroup", "\n:\n::\n4:memory\n4:memory:\n4:memory:relative\n0::/../..\n");
    EXPECT_EQ(machine.read().limited_by, "free RAM");
}

TEST(MachineMemory, ReadsThisMachine) {
    const MachineMemory memory = MachineMemory::read();
    EXPECT_GT(memory.available_bytes, 1U << 20);
    EXPECT_FALSE(memory.limited_by.empty());
}

}  // namespace
}  // namespace penstock
