// Places where no store can be: read-only, full, not permitted.
#include "tests/swap/store/exercise.h"

#include "aio/words/error.h"
#include "tests/swap/directory/mounts.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fstream>

namespace penstock::testing {
namespace {

constexpr const char* no_mounts = "this machine does not let a test mount file systems";

// "CODE MESSAGE", or "no error".
template <typename Run>
std::string outcome(Run run) {
    try {
        run();
    } catch (const Error& error) {
        return fmt::format("{} {}", static_cast<int>(error.code()), error.what());
    }
    return "no error";
}

void make_store(const std::string& path, std::uint64_t object_bytes) {
    store::StoreDirectory directory(path, "test");
    aio::Io io(aio::make_thread_backend({}), {});
    store::TensorStore::create(
        io, {&directory},
        {.objects = {{"large", object_bytes, 1 << 20}}, .caching = aio::Caching::direct, .progress = {}});
}

std::uint64_t free_bytes(const std::string& path) {
    struct statvfs space {};
    return ::statvfs(path.c_str(), &space) == 0 ? static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize : 0;
}

bool begins_with(const std::string& text, const std::string& part) {
    return text.compare(0, part.size(), part) == 0;
}
bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Place, AReadOnlyFileSystemIsRefusedByName) {
    const TemporaryDirectory scratch;
    const std::string path = scratch.file("store");
    { const store::StoreDirectory directory(path, "test"); }
    for (const std::string& tried : {path, path + "/new"}) {
        const MountOutcome result =
            run_with_mounts([&] { return mount_read_only(path); },
                            [&] { return outcome([&] { const store::StoreDirectory directory(tried, "test"); }); });
        if (!result.allowed) GTEST_SKIP() << no_mounts;
        EXPECT_TRUE(begins_with(result.text, "4 " + tried)) << result.text;
        EXPECT_TRUE(contains(result.text, "read-only")) << result.text;
    }
}

TEST(Place, AStoreThatDoesNotFitIsRefusedBeforeItIsMadeAndLeavesNothingReserved) {
    const TemporaryDirectory scratch;
    const std::string mount = scratch.file("small");
    ASSERT_EQ(::mkdir(mount.c_str(), 0700), 0);
    const MountOutcome result =
        run_with_mounts([&] { return mount_tmpfs(mount, 8 << 20); },
                        [&] {
                            const std::uint64_t before = free_bytes(mount);
                            const std::string text = outcome([&] { make_store(mount + "/store", 10 << 20); });
                            const std::uint64_t used = before - free_bytes(mount);
                            return fmt::format("{}|{}|{}", text, before, used < (64 << 10) ? "released" : "kept");
                        });
    if (!result.allowed) GTEST_SKIP() << no_mounts;
    EXPECT_TRUE(begins_with(result.text, "3 " + mount + "/store")) << result.text;
    EXPECT_TRUE(contains(result.text, "needs 2")) << result.text;  // 20 MiB and the manifests
    EXPECT_TRUE(contains(result.text, "are free")) << result.text;
    EXPECT_TRUE(contains(result.text, "are missing")) << result.text;
    EXPECT_TRUE(contains(result.text, "|released")) << result.text;
}

TEST(Place, AStoreThatJustFitsIsMadeAndMadeAgainAfterAnInterruption) {
    const TemporaryDirectory scratch;
    const std::string mount = scratch.file("small");
    ASSERT_EQ(::mkdir(mount.c_str(), 0700), 0);
    const MountOutcome result =
        run_with_mounts([&] { return mount_tmpfs(mount, 8 << 20); },
                        [&] {
                            const std::string first = outcome([&] { make_store(mount + "/store", 3 << 20); });
                            return first + "|" + outcome([&] { make_store(mount + "/store", 3 << 20); });
                        });
    if (!result.allowed) GTEST_SKIP() << no_mounts;
    EXPECT_EQ(result.text, "no error|no error");
}

TEST(Place, AFileSystemWithoutAByteLeftIsNamed) {
    const TemporaryDirectory scratch;
    const std::string mount = scratch.file("small");
    ASSERT_EQ(::mkdir(mount.c_str(), 0700), 0);
    const MountOutcome result = run_with_mounts([&] { return mount_tmpfs(mount, 1 << 20); },
                                                [&] {
                                                    ::mkdir((mount + "/store").c_str(), 0700);
                                                    std::ofstream(mount + "/filler")
                                                        << std::string(2 << 20, 'x') << std::flush;
                                                    return outcome([&] { make_store(mount + "/store", 4096); });
                                                });
    if (!result.allowed) GTEST_SKIP() << no_mounts;
    EXPECT_TRUE(begins_with(result.text, "3 " + mount + "/store")) << result.text;
    EXPECT_TRUE(contains(result.text, "ENOSPC")) << result.text;
}

TEST(Place, ADirectoryWithoutPermissionIsNamed) {
    if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
    const TemporaryDirectory scratch;
    const std::string path = scratch.file("store");
    ASSERT_EQ(::mkdir(path.c_str(), 0500), 0);
    const std::string text = outcome([&] { const store::StoreDirectory directory(path, "test"); });
    EXPECT_TRUE(begins_with(text, "4 " + path)) << text;
    EXPECT_TRUE(contains(text, "EACCES")) << text;
}

}  // namespace
}  // namespace penstock::testing
