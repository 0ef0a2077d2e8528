#include "tests/fuzz/fuzz_target.h"

#include <array>

namespace penstock::fuzz {

std::span<const FuzzTarget* const> fuzz_targets() {
    static constexpr std::array targets = {&lock_text_target, &machine_memory_target, &manifest_target,
                                           &profile_target,   &recovery_target,       &store_target};
    return targets;
}

}  // namespace penstock::fuzz
