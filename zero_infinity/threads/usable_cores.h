// How many threads of arithmetic can run at once.
#pragma once

#include <string>

namespace penstock::zero {

struct UsableCores {
    unsigned count = 1;
    std::string limited_by;  // "the machine's processors", "the affinity mask", "cgroup limit /sys/fs/cgroup/…/cpu.max"
    // The least of the processors that this process may run on and the quotas of its cgroup and those above it (v1 and
    // v2), a part of a processor counted as one. `root` stands before /proc and /sys: a test shows another machine.
    static UsableCores read(const std::string& root = "");
};

}  // namespace penstock::zero
