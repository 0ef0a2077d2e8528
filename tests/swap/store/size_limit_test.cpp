// A limit on file sizes (ulimit -f): the kernel answers a write behind it with EFBIG, and with a signal that ends the
// program. Each case in a process of its own, because a limit is a process's.
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/snapshot/repair.h"
#include "swap/store/blocking.h"
#include "swap/store/open_store.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <string>

namespace penstock::testing {
namespace {

constexpr std::uint64_t tile_bytes = 256U << 10;
constexpr std::uint64_t object_bytes = 16 * tile_bytes;  // twice that in the file

void limit_files(std::uint64_t bytes) {
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
}

// Exit status 0, unless something is thrown or a signal comes. What is said of SIGXFSZ afterwards is as before.
[[noreturn]] void end_after(const std::function<bool()>& body) {
    ::signal(SIGXFSZ, SIG_DFL);
    bool right = false;
    try {
        right = body();
    } catch (const Error& error) {
        std::cerr << "thrown: " << error.what() << '\n';
    }
    sigset_t pending, blocked;
    ::sigpending(&pending);
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    const bool quiet = ::sigismember(&pending, SIGXFSZ) == 0 && ::sigismember(&blocked, SIGXFSZ) == 0;
    std::_Exit(right && quiet ? 0 : 1);
}

std::string refusal(const std::function<void()>& action, ExitCode code = ExitCode::does_not_fit) {
    try {
        action();
    } catch (const Error& error) {
        return error.code() == code ? error.what() : "another exit code";
    }
    return "not refused";
}

bool says(const std::string& text, std::initializer_list<std::string> words) {
    std::cerr << text << '\n';
    for (const std::string& word : words) {
        if (text.find(word) == std::string::npos) return std::cerr << "no '" << word << "' in: " << text << '\n', false;
    }
    return true;
}

struct Way {
    aio::BackendKind backend;
    aio::Caching caching;
};

class SizeLimit : public ::testing::Test {
   protected:
    store::OpenStore directories(Way way) const {
        store::OpenStore open({path()}, "limit");
        open.start_io({.caching = way.caching, .backend = way.backend});
        return open;
    }
    static store::CreateOptions objects() { return {.objects = {{"weights", object_bytes, tile_bytes}}}; }
    std::string path() const { return scratch_.file("store"); }

    TemporaryDirectory scratch_;
};

constexpr Way usual{aio::BackendKind::threads, aio::Caching::buffered};

TEST_F(SizeLimit, IsToldWhenAStoreIsCreated) {
    EXPECT_EXIT(end_after([&] {
                    limit_files(object_bytes);
                    store::OpenStore open = directories(usual);
                    const std::string told = refusal([&] { open.create(objects()); });
                    if (!says(told, {path() + "/data", "8388608 bytes", "4194304", "ulimit -f"})) return false;
                    limit_files(2 * object_bytes);
                    store::OpenStore(std::move(open)).create(objects());
                    return true;
                }),
                ::testing::ExitedWithCode(0), "ulimit -f");
}

TEST_F(SizeLimit, IsToldWhenAStoreIsOpenedButNotToAReader) {
    directories(usual).create(objects());
    {
        store::OpenStore open = directories(usual);
        commit_blocking(open.io(), open.create(objects()), {});
    }
    EXPECT_EXIT(end_after([&] {
                    limit_files(2 * object_bytes - 1);
                    const std::string told = refusal([&] { directories(usual).open(); });
                    store::OpenStore reader = store::OpenStore::find({path()}, store::Sharing::shared);
                    reader.start_io({.caching = aio::Caching::buffered});
                    reader.open();
                    return says(told, {path() + "/data", "8388608 bytes", "8388607", "ulimit -f"});
                }),
                ::testing::ExitedWithCode(0), "ulimit -f");
}

// The lock is the first file that is written.
TEST_F(SizeLimit, OfNothingAtAllIsAnErrorOfTheLock) {
    EXPECT_EXIT(end_after([&] {
                    limit_files(0);
                    const std::string told = refusal([&] { directories(usual); }, ExitCode::storage);
                    limit_files(RLIM_INFINITY);  // the test's own words go to a file
                    return says(told, {"lock", "EFBIG", "ulimit -f"});
                }),
                ::testing::ExitedWithCode(0), "EFBIG");
}

TEST_F(SizeLimit, EndsNoProgramThatRepairsAManifest) {
    {
        store::OpenStore open = directories(usual);
        commit_blocking(open.io(), open.create(objects()), {});
    }
    std::filesystem::resize_file(path() + "/manifest.1", 4096);
    EXPECT_EXIT(end_after([&] {
                    const store::StoreDirectory directory(path(), "limit");
                    limit_files(8192);
                    const auto repair = [&] { store::repair_manifests(directory); };
                    return says(refusal(repair, ExitCode::storage), {"manifest.1", "EFBIG"});
                }),
                ::testing::ExitedWithCode(0), "EFBIG");
}

class LoweredSizeLimit : public SizeLimit, public ::testing::WithParamInterface<Way> {};

// All of a write lies behind it, and of the next one a part.
TEST_P(LoweredSizeLimit, IsAnErrorOfTheWriteAndOfTheCommit) {
    const auto live = [&] {
        store::OpenStore open = directories(GetParam());
        store::TensorStore& store = open.create(objects());
        const aio::ScratchMemory memory(tile_bytes);
        write_blocking(open.io(), store, {0, 0}, memory.span());
        commit_blocking(open.io(), store, {});
        const std::uint64_t offset = store.location({0, 15}).offset_bytes;
        for (const std::uint64_t limit : {offset, offset + 8192}) {
            limit_files(limit);
            const auto write = [&] { write_blocking(open.io(), store, {0, 15}, memory.span()); };
            if (!says(refusal(write, ExitCode::storage), {"EFBIG", "ulimit -f"})) return false;
        }
        const auto commit = [&] { commit_blocking(open.io(), store, {}); };
        if (!says(refusal(commit, ExitCode::storage), {"could not be written"})) return false;
        limit_files(RLIM_INFINITY);
        write_blocking(open.io(), store, {0, 15}, memory.span());
        limit_files(4096);  // the second copy of the manifest
        if (!says(refusal(commit, ExitCode::storage), {"EFBIG"})) return false;
        return store.poisoned();
    };
    try {
        directories(GetParam());
    } catch (const Error& error) {
        GTEST_SKIP() << error.what();
    }
    EXPECT_EXIT(end_after(live), ::testing::ExitedWithCode(0), "EFBIG");
}

INSTANTIATE_TEST_SUITE_P(EachWay, LoweredSizeLimit,
                         ::testing::Values(Way{aio::BackendKind::io_uring, aio::Caching::direct},
                                           Way{aio::BackendKind::io_uring, aio::Caching::buffered},
                                           Way{aio::BackendKind::libaio, aio::Caching::direct},
                                           Way{aio::BackendKind::threads, aio::Caching::direct}),
                         [](const auto& each) {
                             return std::string(word_of(each.param.backend)) +
                                    (each.param.caching == aio::Caching::direct ? "_direct" : "_buffered");
                         });

}  // namespace
}  // namespace penstock::testing
