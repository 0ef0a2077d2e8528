// A kernel that takes nothing just now: io_uring_enter says EAGAIN or EBUSY. On one thread a system call filter plays
// it; another thread then finds the kernel well again, since a ring is tied to no thread.
#include "aio/backend.h"
#include "aio/file.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "tests/aio/backend/deny_uring.h"
#include "tests/aio/backend/every_backend.h"
#include "tests/aio/fakes/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

namespace penstock::aio {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t depth = 8;

class UringBackendTest : public ::testing::TestWithParam<UringWait> {
   protected:
    UringBackendTest() : path_(directory_.file("data")), file_(AT_FDCWD, path_, path_, {.mode = FileMode::create}) {
        fill_random(memory_.span(), 5);
    }
    void SetUp() override {
        try {
            backend_ = make_backend({BackendKind::io_uring, GetParam()}, {.depth = depth});
        } catch (const Error& error) {
            GTEST_SKIP() << error.what();
        }
    }
    std::vector<Attempt> attempts(IoKind kind, const ScratchMemory& memory) const {
        std::vector<Attempt> all;
        for (std::size_t i = 0; i < depth; ++i) {
            all.push_back({.kind = kind,
                           .fd = file_.fd(),
                           .data = memory.data() + i * page,
                           .offset_bytes = i * page,
                           .bytes = page});
        }
        return all;
    }
    void expect_whole(const std::vector<Attempt>& all) {
        std::size_t back = 0;
        while (back < all.size()) {
            for (const Attempt* one = backend_->reap(std::chrono::seconds(10)); one != nullptr; one = one->next) ++back;
        }
        for (const Attempt& one : all) EXPECT_EQ(one.result, static_cast<std::int32_t>(page));
    }

    TemporaryDirectory directory_;
    std::string path_;
    File file_;
    ScratchMemory memory_{depth * page};
    std::unique_ptr<Backend> backend_;
};

// Many waits for each of its places, and none waits out its timeout: there may be nothing to wait for.
TEST_P(UringBackendTest, KeepsItsPlacesAndWhatItHoldsWhileTheKernelTakesNothing) {
    for (const int refusal : {EAGAIN, EBUSY}) {
        std::vector<Attempt> writes = attempts(IoKind::write, memory_);
        std::thread([&] {
            ASSERT_TRUE(deny_calls({__NR_io_uring_enter}, refusal));
            for (Attempt& one : writes) {
                ASSERT_TRUE(backend_->submit(one));
                for (int i = 0; i < 4; ++i) EXPECT_EQ(backend_->reap(std::chrono::hours(1)), nullptr);
            }
        }).join();
        expect_whole(writes);
        EXPECT_EQ(backend_->reap(std::chrono::nanoseconds(0)), nullptr);

        const ScratchMemory found(depth * page);
        std::vector<Attempt> reads = attempts(IoKind::read, found);
        for (Attempt& one : reads) ASSERT_TRUE(backend_->submit(one));
        expect_whole(reads);
        EXPECT_EQ(std::memcmp(found.data(), memory_.data(), depth * page), 0);
    }
}

TEST_P(UringBackendTest, HandsBackWhatTheKernelDidNotTakeWhenItIsAbandoned) {
    std::vector<Attempt> writes = attempts(IoKind::write, memory_);
    std::thread([&] {
        ASSERT_TRUE(deny_calls({__NR_io_uring_enter}, EBUSY));
        for (Attempt& one : writes) ASSERT_TRUE(backend_->submit(one));
        for (int i = 0; i < 4; ++i) EXPECT_EQ(backend_->reap(std::chrono::hours(1)), nullptr);
    }).join();
    std::size_t handed_back = 0;
    for (const Attempt* one = backend_->abandon(); one != nullptr; one = one->next) ++handed_back;
    EXPECT_EQ(handed_back, depth);
    EXPECT_EQ(backend_->reap(std::chrono::nanoseconds(0)), nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, UringBackendTest, ::testing::Values(UringWait::probed, UringWait::by_poll),
                         [](const auto& each) { return each.param == UringWait::by_poll ? "by_poll" : "probed"; });

}  // namespace
}  // namespace penstock::aio
