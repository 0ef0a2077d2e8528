// Transfers that another thread has for a while: Io::lend() and give_back().
#include "aio/words/error.h"
#include "tests/aio/fakes/io_over_manual.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

namespace penstock::aio {
namespace {

TEST_F(IoOverManual, WhatIsLentIsDoneByTheFirstPollAfterItWasGivenBack) {
    build(bounded(8 * kib, 4 * kib));
    Counted transfer;
    io_->start(transfer, request(IoKind::read, 4 * kib));
    io_->poll();
    backend_->complete_first(-EIO);
    io_->poll();
    ASSERT_TRUE(transfer.error());
    io_->lend(transfer);
    EXPECT_FALSE(transfer.idle());
    EXPECT_FALSE(io_->idle());
    EXPECT_EQ(io_->poll(), 0U);
    EXPECT_FALSE(io_->due());
    io_->give_back(transfer);
    EXPECT_TRUE(io_->due());
    EXPECT_EQ(transfer.dones, 1);  // from a poll, not from here
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_EQ(transfer.dones, 2);
    EXPECT_FALSE(transfer.error());  // of the loan, which has none
    EXPECT_TRUE(transfer.idle());
    EXPECT_TRUE(io_->idle());
}

TEST_F(IoOverManual, WhatWasLentIsDoneInTheOrderInWhichItCameBackAndMayBeStartedFromThere) {
    build(bounded(8 * kib, 4 * kib));
    std::array<Counted, 4> transfers;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
        transfers[i].then = [&, i] { order.push_back(i); };
        io_->lend(transfers[i]);
    }
    for (const std::size_t i : {2U, 0U, 3U, 1U}) io_->give_back(transfers[i]);
    EXPECT_EQ(io_->poll(), 4U);
    EXPECT_EQ(order, (std::vector<std::size_t>{2, 0, 3, 1}));
    transfers[0].then = [&] {
        transfers[0].then = {};
        io_->start(transfers[0], request(IoKind::write, 4 * kib));
        io_->lend(transfers[1]);
    };
    io_->lend(transfers[0]);
    io_->give_back(transfers[0]);
    io_->poll();
    EXPECT_EQ(in_flight(IoKind::write), 1U);
    io_->give_back(transfers[1]);
    wait_to_the_end();
    EXPECT_EQ(transfers[0].dones, 3);
    EXPECT_EQ(transfers[1].dones, 2);
}

TEST_F(IoOverManual, ALoanIsNoWorkOfTheDeviceAndNeverLate) {
    IoLimits limits = bounded(8 * kib, 4 * kib);
    limits.deadline = std::chrono::seconds(1);
    build(limits);
    Counted transfer;
    io_->lend(transfer);
    io_->promote(transfer, Urgency::demand);  // no effect
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(io_->advance(std::chrono::seconds(3)));
    EXPECT_FALSE(io_->oldest());
    io_->give_back(transfer);
    EXPECT_FALSE(io_->finish(transfer));
    EXPECT_EQ(transfer.dones, 1);
}

TEST_F(IoOverManual, WhatWasGivenBackToAnIoThatEndsIsCancelled) {
    build(bounded(8 * kib, 4 * kib));
    Counted transfer;
    io_->lend(transfer);
    io_->give_back(transfer);
    io_.reset();
    EXPECT_EQ(transfer.dones, 0);
    ASSERT_TRUE(transfer.error());
    EXPECT_EQ(transfer.error()->errno_value, ECANCELED);
}

TEST_F(IoOverManual, ABrokenLoanAborts) {
    build(bounded(8 * kib, 4 * kib));
    Counted transfer;
    io_->lend(transfer);
    EXPECT_DEATH(io_->lend(transfer), "already started");
    EXPECT_DEATH(io_->start(transfer, request(IoKind::read, 4 * kib)), "already started");
    EXPECT_DEATH(io_.reset(), "1 transfers are lent");
    io_->give_back(transfer);
    io_->poll();
    EXPECT_DEATH(
        {
            io_->give_back(transfer);
            io_->poll();
        },
        "was not lent");
}

// Gives back whatever it is given, in a thread of its own.
class Borrower {
   public:
    explicit Borrower(Io& io) : io_(io), thread_([this] { work(); }) {}
    ~Borrower() {
        take({});
        thread_.join();
    }
    void take(std::optional<Transfer*> transfer) {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(transfer);
        there_.notify_one();
    }

   private:
    void work() {
        for (;;) {
            std::unique_lock lock(mutex_);
            there_.wait(lock, [this] { return !waiting_.empty(); });
            const std::optional<Transfer*> next = waiting_.front();
            waiting_.pop_front();
            lock.unlock();
            if (!next) return;
            io_.give_back(**next);
        }
    }

    Io& io_;
    std::mutex mutex_;
    std::condition_variable there_;
    std::deque<std::optional<Transfer*>> waiting_;
    std::thread thread_;
};

struct Loan : Transfer {
    int dones = 0;
    int left = 0;
    Io* io = nullptr;
    Borrower* to = nullptr;
    void lend() {
        io->lend(*this);
        to->take(this);
    }
    void done() noexcept override {
        ++dones;
        if (--left > 0) lend();
    }
};

// Beside transfers of the kernel: each loan ends a wait once, and none is lost.
TEST(LentTransfer, ManyThreadsGiveBackWhileTheOwnerSleeps) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("data");
    const File file(AT_FDCWD, path, path, {.mode = FileMode::create});
    const ScratchMemory memory(4096);
    for (const auto kind : {std::optional<BackendKind>(), std::optional(BackendKind::threads)}) {
        Io io(open_backend(file.fd(), {}, kind).backend, {});
        Counted write;
        std::array<Loan, 8> loans;
        {
            std::array<std::optional<Borrower>, 3> borrowers;
            for (auto& borrower : borrowers) borrower.emplace(io);
            for (std::size_t i = 0; i < loans.size(); ++i) {
                loans[i].io = &io;
                loans[i].to = &*borrowers[i % borrowers.size()];
                loans[i].left = 300;
                loans[i].lend();
            }
            int writes = 0;
            while (!io.idle() || writes < 50) {  // the loans may end first
                if (write.idle() && writes < 50) {
                    io.start(write, {.kind = IoKind::write, .file = &file, .data = memory.data(), .bytes = 4096});
                    ++writes;
                }
                io.wait(std::chrono::hours(1));
            }
        }
        for (const Loan& loan : loans) EXPECT_EQ(loan.dones, 300);
        EXPECT_EQ(write.dones, 50);
    }
}

}  // namespace
}  // namespace penstock::aio
