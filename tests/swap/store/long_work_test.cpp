// (A device that does not answer, and progress that throws: in the tests of what uses it, e.g. verify_test.cpp.)
#include "swap/store/long_work.h"
#include "aio/words/io_error.h"

#include "aio/file.h"
#include "tests/aio/fakes/io_over_manual.h"
#include "tests/aio/fakes/manual_backend.h"
#include "tests/aio/fakes/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace penstock::testing {
namespace {

constexpr std::chrono::milliseconds deadline(20);

// The process stands still (SIGSTOP, a suspended machine) for longer than the deadline whenever it waits, while the
// device goes on.
class StoppedBackend final : public aio::Backend {
   public:
    bool submit(aio::Attempt& attempt) override { return inner_.submit(attempt); }
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        if (timeout == std::chrono::nanoseconds(0)) return inner_.reap(timeout);
        std::this_thread::sleep_for(2 * deadline);
        inner_.complete_all();
        return nullptr;
    }
    void wake() noexcept override { inner_.wake(); }
    aio::Attempt* abandon() noexcept override { return inner_.abandon(); }
    std::chrono::steady_clock::time_point now() const noexcept override { return std::chrono::steady_clock::now(); }
    std::size_t depth() const noexcept override { return inner_.depth(); }
    const char* name() const noexcept override { return "stopped"; }

   private:
    aio::ManualBackend inner_{16};
};

constexpr std::uint64_t block_bytes = 16 * aio::kib;

// Reads the first block of a file, again and again.
class Reading final : public store::LongWork {
   public:
    Reading(aio::Io& io, const aio::File& file, int blocks) : io_(io), file_(file), left_(blocks), total_(blocks) {
        block_.owner = this;
        next();
    }
    bool finished() const noexcept override { return left_ == 0; }
    void stop() noexcept override {}
    void abandon() noexcept override { ADD_FAILURE() << "nothing was stuck"; }
    std::uint64_t done_bytes() const noexcept override {
        return static_cast<std::uint64_t>(total_ - left_) * block_bytes;
    }
    std::uint64_t total_bytes() const noexcept override { return static_cast<std::uint64_t>(total_) * block_bytes; }

   private:
    struct Block final : aio::Transfer {
        Reading* owner = nullptr;
        void done() noexcept override {
            if (--owner->left_ > 0) owner->next();
        }
    };
    void next() {
        io_.start(block_, {.kind = aio::IoKind::read,
                           .file = &file_,
                           .data = memory_.data(),
                           .offset_bytes = 0,
                           .bytes = block_bytes});
    }

    aio::Io& io_;
    const aio::File& file_;
    aio::ScratchMemory memory_{block_bytes};
    Block block_;
    int left_;
    int total_;
};

TEST(LongWork, AProcessThatStoodStillLosesNothingThatCameBackMeanwhile) {
    const TemporaryDirectory directory{aio::quick_temporary_path()};
    const std::string path = directory.file("data");
    const aio::File file(AT_FDCWD, path, path, {.mode = aio::FileMode::create});
    aio::IoLimits limits = aio::bounded(8 * aio::kib, 4 * aio::kib);  // half a block at a time
    limits.deadline = deadline;
    aio::Io io(std::make_unique<StoppedBackend>(), limits);
    std::unique_ptr<store::LongWork> work = std::make_unique<Reading>(io, file, 5);
    std::uint64_t done = 0;
    EXPECT_NO_THROW(finish_work(io, work, [&](std::uint64_t bytes, std::uint64_t) { done = bytes; }));
    ASSERT_NE(work, nullptr);
    EXPECT_TRUE(work->finished());
    EXPECT_EQ(done, 5U * block_bytes);
}

}  // namespace
}  // namespace penstock::testing
