#include "trainer/config/key_table.h"

#include "tests/trainer/data/text_files.h"
#include "trainer/config/settings.h"

#include <gtest/gtest.h>

#include <set>

namespace penstock::trainer {
namespace {

TEST(KeyTable, HasEachKeyOnceAndNoKeyThatIsASection) {
    std::set<std::string_view> seen;
    for (const KeySpec& key : keys()) {
        EXPECT_TRUE(seen.insert(key.path).second) << key.path;
        EXPECT_FALSE(is_section(key.path)) << key.path;
        EXPECT_EQ(find_key(key.path), &key);
        EXPECT_FALSE(key.help.empty()) << key.path;
        EXPECT_EQ(key.help.find('|'), std::string_view::npos) << key.path << ": would break the table of the reference";
    }
}

TEST(KeyTable, ADefaultStandsInTheTableOrInTheMemberThatIsFilled) {
    for (const KeySpec& key : keys()) {
        const bool in_table = !key.fallback.empty() || key.place.read == nullptr;
        EXPECT_EQ(default_text(key) == key.fallback, in_table) << key.path;
        if (key.place.read != nullptr) {
            EXPECT_TRUE(key.fallback.empty() || key.fallback.starts_with("(")) << key.path << ": which of two counts";
            EXPECT_NE(key.place.fill, nullptr) << key.path;
        }
    }
    EXPECT_EQ(default_text(*find_key("memory.prefetch_depth")), "2");
    EXPECT_EQ(default_text(*find_key("model.norm")), "\"rms\"");
    EXPECT_EQ(default_text(*find_key("run.directory")), "") << "required";
}

TEST(KeyTable, KnowsSectionsAtEachDepth) {
    EXPECT_TRUE(is_section("model"));
    EXPECT_TRUE(is_section("optimizer.params"));
    EXPECT_FALSE(is_section("mode"));
    EXPECT_FALSE(is_section("model.hidden"));
    EXPECT_FALSE(is_section(""));
}

TEST(KeyTable, KnowsTheWordsOfASection) {
    EXPECT_EQ(words_of_section("run.sample"), (std::vector<std::string_view>{"prompt", "tokens", "temperature"}));
    EXPECT_EQ(words_of_section("optimizer"), (std::vector<std::string_view>{"type", "groups"}));
    EXPECT_TRUE(words_of_section("optimiz").empty());
}

TEST(KeyTable, ProposesTheNearestKey) {
    EXPECT_EQ(nearest_key("model.hiden"), "model.hidden");
    EXPECT_EQ(nearest_key("modle"), "model");
    EXPECT_EQ(nearest_key("train_micro_batch_size_per_gup"), "train_micro_batch_size_per_gpu");
    EXPECT_EQ(nearest_key("optimizer.params.weigth_decay"), "optimizer.params.weight_decay");
    EXPECT_EQ(nearest_key("zero_optimisation"), "zero_optimization");
}

TEST(KeyTable, ProposesTheRightWordOfAnotherSection) {
    EXPECT_EQ(nearest_key("hidden"), "model.hidden");
    EXPECT_EQ(nearest_key("memory.seed"), "run.seed");
    EXPECT_EQ(nearest_key("optimizer.lr"), "optimizer.params.lr");
}

// What docs/reference-keys.md has between two comments.
std::string in_the_reference(const std::string& name) {
    const std::string page = testing::read_file(PENSTOCK_SOURCE_DIR "/docs/reference-keys.md");
    const std::string begin = "<!-- " + name + " -->\n";
    const auto first = page.find(begin);
    const auto last = page.find("<!-- end of " + name + " -->");
    if (first == std::string::npos || last == std::string::npos) return "no such part";
    return page.substr(first + begin.size(), last - first - begin.size());
}

TEST(KeyTable, TheReferenceHasTheKeysOfTheProgram) {
    EXPECT_EQ(in_the_reference("penstock keys"), reference_table()) << "run tools/reference.py";
}

TEST(KeyTable, TheReferenceHasTheKeysOfThePackage) {
    EXPECT_EQ(in_the_reference("penstock keys --package"), package_reference()) << "run tools/reference.py";
}

}  // namespace
}  // namespace penstock::trainer
