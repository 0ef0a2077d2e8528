// Cuts the power of the store that this program was linked with. Arguments: what must be said of it. Exits with 77
// (skipped) where power cuts cannot be made.
#include "tests/control.h"
#include "tests/swap/block_device/power_images.h"
#include "tests/swap/directory/mounts.h"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
    using namespace penstock;
    using namespace penstock::store;
    using namespace penstock::testing;
    if (!can_make(FileSystem::ext4)) return 77;
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    std::unique_ptr<PowerImages> power;
    const auto make = [&] {
        try {
            power = std::make_unique<PowerImages>(scratch.file(""), FileSystem::ext4, "");
        } catch (const std::exception& error) {
            std::puts(error.what());
        }
        return power != nullptr;
    };
    const auto run = [&](std::uint64_t seed) { return power->run(seed, 220); };
    const MountOutcome outcome = run_with_mounts(make, [&] {
        // What was not flushed may have landed all the same, on a machine that has other writes to wait for.
        const int status = argc > 1 ? find_mutant(argv[1], 12, run) : find_mutant("", 3, run);
        std::fflush(stdout);
        power.reset();
        return status == 0 ? std::string() : "survived";
    });
    if (outcome.allowed) return outcome.text.empty() ? 0 : 1;
    std::puts("skipped: power cuts need root, /dev/fuse and loop devices");
    return 77;
}
