#include "trainer/cli/remedies.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock::testing {
namespace {

bool has(const std::string& text, const std::string& words) {
    return text.find(words) != std::string::npos;
}

TEST(Remedies, OfTheProgramNameItsToolsAndThoseOfTheLibraryNone) {
    const store::Remedies& ours = trainer::program_remedies();
    EXPECT_TRUE(has(ours.of_damage("/nvme/swap"), "smartctl"));
    EXPECT_TRUE(has(ours.of_damage("/nvme/swap"), "'penstock ckpt scrub /nvme/swap'"));
    EXPECT_TRUE(has(ours.of_damaged_snapshot("/nvme/swap"), "penstock ckpt ls"));
    EXPECT_TRUE(has(ours.of_loss("/nvme/swap"), "move the kept snapshots out of it (/nvme/swap/kept"));
    EXPECT_TRUE(has(ours.of_manifest("/nvme/swap"), "'penstock ckpt scrub /nvme/swap'"));
    EXPECT_TRUE(has(ours.of_lock("/nvme/swap"), "'penstock ckpt scrub /nvme/swap'"));
    const store::Remedies& plain = store::library_remedies();
    for (const std::string& words :
         {plain.of_damage("/nvme/swap"), plain.of_damaged_snapshot("/nvme/swap"), plain.of_loss("/nvme/swap"),
          plain.of_manifest("/nvme/swap"), plain.of_lock("/nvme/swap")})
        EXPECT_FALSE(has(words, "penstock ")) << words;
}

}  // namespace
}  // namespace penstock::testing
