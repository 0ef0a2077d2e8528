#include "trainer/ckpt/find_snapshot.h"
#include "aio/words/error.h"

#include "tests/temporary_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace penstock::trainer {
namespace {

TEST(FindSnapshot, TakesAStepANameOrAPath) {
    const TemporaryDirectory directory;
    const SnapshotFolder folder(directory / "kept");
    for (const char* name : {"kept/step-7", "kept/best", "elsewhere"})
        std::filesystem::create_directories(directory / name);
    EXPECT_EQ(find_snapshot(folder, "7"), directory / "kept/step-7");
    EXPECT_EQ(find_snapshot(folder, "best"), directory / "kept/best");
    EXPECT_EQ(find_snapshot(folder, directory / "elsewhere"), directory / "elsewhere");
    const std::vector<std::string> none = {"elsewhere",          "8", "-7", "", "99999999999999999999999",
                                           directory / "nowhere"};
    for (const std::string& name : none) EXPECT_THROW(find_snapshot(folder, name), Error) << name;
}

}  // namespace
}  // namespace penstock::trainer
