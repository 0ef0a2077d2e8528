#include "tests/temporary_directory.h"

#include <gtest/gtest.h>

#include <sys/wait.h>

#include <fstream>
#include <set>

namespace penstock {
namespace {

std::set<std::string> names_in(const std::string& path) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path)) names.insert(entry.path().filename().string());
    return names;
}

std::string name_of(const TemporaryDirectory& directory) {
    return std::filesystem::path(directory.path()).filename().string();
}

// A process that makes a directory below `parent`, with something in it, and dies with it.
void die_within(const std::string& parent) {
    const pid_t child = ::fork();
    if (child == 0) {
        const TemporaryDirectory left(parent);
        std::ofstream(left / "file") << "data";
        std::filesystem::create_directories(left / "deep/er");
        ::_exit(0);
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(TemporaryDirectory, IsRemovedWithItsContents) {
    std::string path;
    {
        const TemporaryDirectory directory;
        path = directory.path();
        EXPECT_TRUE(std::filesystem::path(path).is_absolute());
        std::filesystem::create_directories(directory / "deep/er");
        std::ofstream(directory.file("file")) << "data";
    }
    EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TemporaryDirectory, OfAProcessThatDiedIsRemovedByTheNext) {
    const TemporaryDirectory parent;
    die_within(parent.path());
    die_within(parent.path());
    EXPECT_EQ(names_in(parent.path()).size(), 1U);  // the second one removed the first one's
    const TemporaryDirectory next(parent.path());
    EXPECT_EQ(names_in(parent.path()), std::set<std::string>{name_of(next)});
}

TEST(TemporaryDirectory, OfADeathTestsChildIsRemovedWithItsParents) {
    const TemporaryDirectory parent;
    {
        const TemporaryDirectory own(parent.path());
        die_within(parent.path());
        EXPECT_EQ(names_in(parent.path()).size(), 2U);
    }
    EXPECT_EQ(names_in(parent.path()), std::set<std::string>{});
}

TEST(TemporaryDirectory, WhoseOwnerLivesStays) {
    const TemporaryDirectory parent;
    const TemporaryDirectory one(parent.path());
    { const TemporaryDirectory passing(parent.path()); }
    const TemporaryDirectory other(parent.path());
    EXPECT_EQ(names_in(parent.path()), (std::set<std::string>{name_of(one), name_of(other)}));
}

TEST(TemporaryDirectory, RemovesNothingElse) {
    const TemporaryDirectory parent;
    std::filesystem::create_directory(parent / "penstock-other");
    std::ofstream(parent / "penstock-test-file") << "no directory";
    std::filesystem::create_directory(parent / "kept");
    std::filesystem::create_directory_symlink(parent / "kept", parent / "penstock-test-link");
    { const TemporaryDirectory passing(parent.path()); }
    EXPECT_EQ(names_in(parent.path()),
              (std::set<std::string>{"kept", "penstock-other", "penstock-test-file", "penstock-test-link"}));
}

TEST(TemporaryDirectory, ThatCannotBeMadeIsSaid) {
    EXPECT_THROW(TemporaryDirectory("/proc/self"), std::runtime_error);
}

}  // namespace
}  // namespace penstock
