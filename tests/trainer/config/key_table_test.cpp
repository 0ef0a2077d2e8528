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
        EXPECT_EQ(key.help.find('|'), std::string_view::npos) << key.path << ": would break the table in README.md";
    }
}

TEST(KeyTable, ADefaultStandsInTheTableOrInTheMemberThatIsFilled) {
    for (const KeySpec& key : keys()) {
        EXPECT_EQ(default_text(key) == key.fallback, key.place.read == nullptr) << key.path;
        if (key.place.read != nullptr) {
            EXPECT_TRUE(key.fallback.empty()) << key.path;
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

TEST(KeyTable, ReferenceInReadmeIsTheTable) {
    const std::string readme = testing::read_file(PENSTOCK_SOURCE_DIR "/trainer/README.md");
    const std::string begin = "<!-- penstock keys -->\n";
    const auto first = readme.find(begin);
    const auto last = readme.find("<!-- end of penstock keys -->");
    ASSERT_NE(first, std::string::npos);
    ASSERT_NE(last, std::string::npos);
    const auto from = first + begin.size();
    EXPECT_EQ(readme.substr(from, last - from), reference_table())
        << "put the output of `penstock keys` between the two comments of trainer/README.md";
}

}  // namespace
}  // namespace penstock::trainer
