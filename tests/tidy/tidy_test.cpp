// The rules of the tree (tests/tidy/rules.h), asked of this tree.
#include "tests/tidy/rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace penstock::tidy {
namespace {

bool is_wanted(std::string_view path) {
    const auto endings = {".cpp", ".h", ".cu", ".cuh", "/CMakeLists.txt"};
    return std::ranges::any_of(endings, [&](const char* ending) { return path.ends_with(ending); });
}

Tree read_tree(const std::filesystem::path& root) {
    Tree tree;
    for (const char* folder : {"aio", "pinned_pool", "swap", "zero_infinity", "trainer", "bench", "tests"}) {
        if (!std::filesystem::is_directory(root / folder)) continue;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
            const std::string path = std::filesystem::relative(entry.path(), root).generic_string();
            if (!entry.is_regular_file() || !is_wanted(path)) continue;
            std::ostringstream text;
            text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
            tree[path] = text.str();
        }
    }
    return tree;
}

std::string joined(const Complaints& complaints) {
    std::string text;
    for (const std::string& complaint : complaints) text += complaint + "\n";
    return text;
}

TEST(Tidy, EveryFileObeysTheRules) {
    const Tree tree = read_tree(PENSTOCK_SOURCE_DIR);
    ASSERT_TRUE(tree.contains("tests/tidy/tidy_test.cpp")) << "the tree was not found";
    Complaints complaints;
    for (const auto& [path, text] : tree) {
        if (!path.ends_with("CMakeLists.txt"))
            std::ranges::move(check_file(path, text), std::back_inserter(complaints));
    }
    EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

TEST(Tidy, RingHeadersAreInOneFileEach) {
    const Complaints complaints = check_ring_headers(read_tree(PENSTOCK_SOURCE_DIR));
    EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

TEST(Tidy, EverySourceIsListedInCMake) {
    const Complaints complaints = check_listed(read_tree(PENSTOCK_SOURCE_DIR));
    EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

TEST(Tidy, EveryTypeHasANameOfItsOwn) {
    const Complaints complaints = check_type_names(read_tree(PENSTOCK_SOURCE_DIR));
    EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

TEST(Tidy, InstalledHeadersIncludeWhatIsInstalled) {
    const Complaints complaints = check_installed(read_tree(PENSTOCK_SOURCE_DIR));
    EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

TEST(Tidy, RoomsNameWhatTheyUse) {
    const Complaints complaints = check_uses(read_tree(PENSTOCK_SOURCE_DIR));
    EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

TEST(Tidy, NoFolderIsAStore) {
    const Complaints complaints = check_folders(read_tree(PENSTOCK_SOURCE_DIR));
    EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

}  // namespace
}  // namespace penstock::tidy
