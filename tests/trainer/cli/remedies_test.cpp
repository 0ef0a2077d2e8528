#include "trainer/cli/remedies.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock::testing {
namespace {

bool has(const std::string& text, const std::string& words) {
    return text.find(words) != std::string::npos;
}

TEST(Remedies, OfTheProgramNameItsToolsAndThoseOfTheLibraryNone) {
    const store::SharedRemedies kept = trainer::remedies_of_store({.directories = {"/nvme/swap"}});
    const store::Remedies& ours = *kept;
    EXPECT_TRUE(has(ours.of_damage("/nvme/swap"), "smartctl"));
    EXPECT_TRUE(has(ours.of_damage("/nvme/swap"), "'penstock ckpt scrub /nvme/swap'"));
    EXPECT_TRUE(has(ours.of_damaged_snapshot("/nvme/swap"), "penstock ckpt ls"));
    EXPECT_TRUE(has(ours.of_loss("/nvme/swap"), "move the kept snapshots out of it (/nvme/swap/kept"));
    EXPECT_TRUE(has(ours.of_manifest("/nvme/swap"), "'penstock ckpt scrub /nvme/swap'"));
    EXPECT_TRUE(has(ours.of_lock("/nvme/swap"), "'penstock ckpt scrub /nvme/swap'"));
    const store::Remedies& plain = *store::library_remedies();
    for (const std::string& words :
         {plain.of_damage("/nvme/swap"), plain.of_damaged_snapshot("/nvme/swap"), plain.of_loss("/nvme/swap"),
          plain.of_manifest("/nvme/swap"), plain.of_lock("/nvme/swap")})
        EXPECT_FALSE(has(words, "penstock ")) << words;
}

TEST(Remedies, OfAStoreOverSeveralDirectoriesCanBeTypedAsTheyAre) {
    const store::SharedRemedies ours = trainer::remedies_of_store({.directories = {"a/swap", "b/swap"}});
    for (const std::string directory : {"a/swap", "b/swap"}) {
        EXPECT_TRUE(has(ours->of_lock(directory), "'penstock ckpt scrub a/swap --also b/swap'"));
        EXPECT_TRUE(has(ours->of_manifest(directory), "'penstock ckpt scrub a/swap --also b/swap'"));
    }
    EXPECT_TRUE(has(ours->of_damage("a/swap"), "'penstock ckpt scrub a/swap --also b/swap'"));
}

TEST(Remedies, NameTheFolderOfTheSnapshotsWhereItIsNotTheUsualOne) {
    const store::SharedRemedies usual =
        trainer::remedies_of_store({.directories = {"a/swap"}, .snapshots = "a/swap/kept"});
    const store::SharedRemedies ours =
        trainer::remedies_of_store({.directories = {"a/swap", "b/swap"}, .snapshots = "kept"});
    EXPECT_FALSE(has(usual->of_damage("a/swap"), "--kept"));
    const std::string scrub = "'penstock ckpt scrub a/swap --also b/swap --kept kept'";
    for (const std::string& words : {ours->of_damage("a/swap"), ours->of_data("a/swap"), ours->of_lock("b/swap")})
        EXPECT_TRUE(has(words, scrub)) << words;
    for (const std::string& words :
         {ours->of_damage("a/swap"), ours->of_data("a/swap"), ours->of_further_directory("a/swap")})
        EXPECT_TRUE(has(words, "('penstock ckpt ls a/swap --kept kept' lists them)")) << words;
}

TEST(Remedies, WhileScrubbingDoNotAdviseToScrub) {
    const store::SharedRemedies ours = trainer::remedies_of_scrub({.directories = {"swap"}});
    for (const std::string& words : {ours->of_damage("swap"), ours->of_loss("swap"), ours->of_manifest("swap"),
                                     ours->of_lock("swap"), ours->of_data("swap"), ours->of_further_directory("swap")})
        EXPECT_FALSE(has(words, "scrub")) << words;
}

TEST(Remedies, OfASnapshotDoNotSpeakOfAStoreThatHasSome) {
    const store::SharedRemedies ours = trainer::remedies_of_snapshot();
    for (const std::string& words : {ours->of_damage("kept/a"), ours->of_damaged_snapshot("kept/a"),
                                     ours->of_loss("kept/a"), ours->of_manifest("kept/a")}) {
        EXPECT_TRUE(has(words, "take another snapshot")) << words;
        EXPECT_FALSE(has(words, "kept/a/kept")) << words;
    }
    EXPECT_TRUE(has(ours->of_manifest("kept/a"), "'penstock ckpt scrub kept/a'"));
    EXPECT_TRUE(has(ours->of_nothing("kept/a"), "take another snapshot"));
}

}  // namespace
}  // namespace penstock::testing
