#include "pinned_pool/budget.h"
#include "tests/aio/fakes/scratch.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace penstock::pool {
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
    void link(const std::string& path, const std::string& target) {
        const std::filesystem::path whole = root() + path;
        std::filesystem::create_directories(whole.parent_path());
        std::filesystem::create_symlink(target, whole);
    }
    // `soft` is a number or "unlimited"; the capabilities are CapEff of /proc/self/status.
    void put_lock_limit(const std::string& soft, const std::string& capabilities) {
        put("/proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max core file size        0                    unlimited            bytes     \n"
            "Max locked memory         " +
                soft +
                "              9999999              bytes     \n"
                "Max address space         77                   unlimited            bytes     \n");
        put("/proc/self/status", "VmPeak:\t 5 kB\nVmLck:\t 12 kB\nVmPin:\t 4 kB\nCapPrm:\tffffffffffffffff\nCapEff:\t" +
                                     capabilities + "\nCapBnd:\tffffffffffffffff\n");
    }
    std::string root() const { return directory_.file("machine"); }
    MachineMemory read() const { return MachineMemory::read(root()); }

   private:
    TemporaryDirectory directory_;
};

TEST(MachineMemory, IsFreeRamWithoutCgroups) {
    const Machine machine;
    EXPECT_EQ(machine.read().available_bytes, 800U * 1024);
    EXPECT_EQ(machine.read().limited_by, "free RAM");
}

// As the kernel counts MemAvailable: of page cache and of slabs that can be given back, all but half or 64 MiB.
TEST(MachineMemory, ReadsVersion2AndCountsWhatTheKernelGivesBackAsRoom) {
    Machine machine;
    machine.put("/proc/meminfo", "MemAvailable: 99000000 kB\n");
    machine.put("/proc/self/cgroup", "0::/user/job\n");
    machine.put("/sys/fs/cgroup/user/job/memory.max", "8000000000\n");
    machine.put("/sys/fs/cgroup/user/job/memory.current", "7500000000\n");
    machine.put("/sys/fs/cgroup/user/job/memory.stat",
                "anon 1\nfile 5000000000\nshmem 3\ninactive_file 1000000000\nactive_file 3000000000\n"
                "slab_reclaimable 500000000\nslab_unreclaimable 77\n");
    EXPECT_EQ(machine.read().available_bytes, 500000000ULL + 4000000000ULL + 500000000ULL - 2 * (64ULL << 20));
    EXPECT_EQ(machine.read().limited_by, "cgroup limit /sys/fs/cgroup/user/job/memory.max");
}

TEST(MachineMemory, CountsHalfOfLittlePageCacheAsRoom) {
    Machine machine;
    machine.put("/proc/self/cgroup", "0::/user/job\n");
    machine.put("/sys/fs/cgroup/user/job/memory.max", "500000\n");
    machine.put("/sys/fs/cgroup/user/job/memory.current", "400000\n");
    machine.put("/sys/fs/cgroup/user/job/memory.stat", "inactive_file 50000\nactive_file 100000\n");
    EXPECT_EQ(machine.read().available_bytes, 175000U);
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
    machine.put("/sys/fs/cgroup/memory/docker/abc/memory.stat",
                "inactive_file 7\nslab_reclaimable 5\ntotal_inactive_file 60000\ntotal_active_file 140000\n");
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

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

TEST(MachineMemory, MayLockTheSoftLimitLessWhatIsLockedAndPinned) {
    Machine machine;
    machine.put_lock_limit("8388608", "0000000000000000");
    EXPECT_EQ(machine.read().lockable_bytes, 8388608U - 16 * 1024);
}

TEST(MachineMemory, MayLockNothingWhenMoreIsLockedThanTheLimit) {
    Machine machine;
    machine.put_lock_limit("4096", "0000000000000000");
    EXPECT_EQ(machine.read().lockable_bytes, 0U);
}

TEST(MachineMemory, MayLockEverythingWithoutLimit) {
    Machine machine;
    EXPECT_EQ(machine.read().lockable_bytes, unlimited);  // nothing is known: the kernel decides
    machine.put_lock_limit("unlimited", "0000000000000000");
    EXPECT_EQ(machine.read().lockable_bytes, unlimited);
}

TEST(MachineMemory, CapIpcLockCountsInTheFirstUserNamespaceOnly) {
    Machine machine;
    machine.put_lock_limit("8388608", "0000000000004000");
    EXPECT_EQ(machine.read().lockable_bytes, 8388608U - 16 * 1024);  // which namespace is not known
    machine.link("/proc/self/ns/user", "user:[4026531837]");
    EXPECT_EQ(machine.read().lockable_bytes, unlimited);
    machine.put_lock_limit("8388608", "000001ffffffbfff");  // all others
    EXPECT_EQ(machine.read().lockable_bytes, 8388608U - 16 * 1024);

    Machine container;
    container.put_lock_limit("8388608", "000001ffffffffff");
    container.link("/proc/self/ns/user", "user:[4026532999]");
    EXPECT_EQ(container.read().lockable_bytes, 8388608U - 16 * 1024);
}

TEST(MachineMemory, ACgroupsLimitLeavesWhatMayBeLockedAlone) {
    Machine machine;
    machine.put_lock_limit("8388608", "0000000000000000");
    machine.put("/proc/self/cgroup", "0::/\n");
    machine.put("/sys/fs/cgroup/memory.max", "1000\n");
    machine.put("/sys/fs/cgroup/memory.current", "10\n");
    EXPECT_EQ(machine.read().available_bytes, 990U);
    EXPECT_EQ(machine.read().lockable_bytes, 8388608U - 16 * 1024);
}

TEST(MachineMemory, ReadsThisMachine) {
    const MachineMemory memory = MachineMemory::read();
    EXPECT_GT(memory.available_bytes, 1U << 20);
    EXPECT_FALSE(memory.limited_by.empty());
}

}  // namespace
}  // namespace penstock::pool
