#include "tests/control.h"

#include <cstdio>

namespace penstock {

int find_mutant(const std::string& expected, std::uint64_t runs, const ControlRun& run) {
    for (std::uint64_t seed = 0; seed < runs; ++seed) {
        for (const std::string& complaint : run(seed)) {
            if (complaint.find(expected) == std::string::npos) continue;
            std::printf("found in run %llu: %s\n", static_cast<unsigned long long>(seed), complaint.c_str());
            return 0;
        }
    }
    std::printf("nothing of '%s' was found in %llu runs\n", expected.c_str(), static_cast<unsigned long long>(runs));
    return 1;
}

}  // namespace penstock
