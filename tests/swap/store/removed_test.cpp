// A store whose files are taken away while it is in use: what is not found again is not reported as committed.
#include "swap/directory/store_files.h"
#include "swap/store/tensor_store.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

class Removed : public ::testing::Test {
   protected:
    // What a commit says after `removal`.
    std::string commit_after(const std::function<void()>& removal) {
        aio::Io io(aio::make_thread_backend({}), {});
        const Exercise exercise(7);
        store::StoreDirectory directory(path(), "test");
        auto store = directory.content() == store::DirectoryContent::committed
                         ? store::TensorStore::open(io, {&directory})
                         : store::TensorStore::create(io, {&directory}, {.objects = Exercise::objects()});
        EXPECT_FALSE(exercise.advance(io, *store, store->generation().value_or(~std::uint64_t{0}) + 1));
        removal();
        const auto error = commit(io, *store, {});
        EXPECT_EQ(store->poisoned(), error.has_value());
        return error ? error->message : "committed";
    }
    static void expect_told(const std::string& said) {
        EXPECT_NE(said.find("was removed while the store was in use"), std::string::npos) << said;
    }
    fs::path path() const { return scratch.file("store"); }

    TemporaryDirectory scratch;
};

TEST_F(Removed, WithItsDirectoryItCommitsNothingMore) {
    expect_told(commit_after([&] { fs::remove_all(path()); }));
}

// As NFS does with a file that is still open: it has another name then, and is not gone.
TEST_F(Removed, ByAnotherNameItIsGoneAsWell) {
    for (const char* name : {"data", "manifest.0", "manifest.1"}) {
        expect_told(commit_after([&] { fs::rename(path() / name, path() / ".nfs0001"); }));
        fs::rename(path() / ".nfs0001", path() / name);
    }
}

TEST_F(Removed, WithALinkElsewhereItIsGoneAsWell) {
    expect_told(commit_after([&] {
        for (const char* name : {"data", "manifest.0", "manifest.1"})
            fs::create_hard_link(path() / name, scratch.file(name));
        fs::remove_all(path());
        fs::create_directory(path());
    }));
}

TEST_F(Removed, ByAnotherFileInItsPlaceItIsGoneAsWell) {
    expect_told(commit_after([&] {
        fs::create_hard_link(path() / "data", scratch.file("kept"));
        std::ofstream(scratch.file("other")) << "another";
        fs::rename(scratch.file("other"), path() / "data");
    }));
}

// Its files are where they were.
TEST_F(Removed, AMoveOfTheDirectoryIsNoRemoval) {
    EXPECT_EQ(commit_after([&] { fs::rename(path(), scratch.file("moved")); }), "committed");
}

TEST_F(Removed, WhoeverElseCouldRemoveItIsNoted) {
    const auto notes = [&] {
        store::StoreDirectory own = store::StoreDirectory(scratch.file("own"), "test");
        return store::StoreFiles::make({&own}, aio::Caching::buffered, {}).notes;
    };
    EXPECT_TRUE(notes().empty());
    ASSERT_EQ(::chmod(scratch.file("own").c_str(), 0777), 0);
    ASSERT_EQ(notes().size(), 1U);
    EXPECT_NE(notes()[0].find("everybody may write"), std::string::npos) << notes()[0];
    if (::geteuid() != 0) return;  // only root can give directories away
    ASSERT_EQ(::chown(scratch.file("own").c_str(), 12345, 12345), 0);
    ASSERT_EQ(notes().size(), 1U);
    EXPECT_NE(notes()[0].find("another user (12345)"), std::string::npos) << notes()[0];
}

}  // namespace
}  // namespace penstock::testing
