// What is spilled comes back as it was, or an error says where it was lost; and nothing of it is left behind.
#include "swap/spill/spill.h"

#include "aio/words/error.h"
#include "swap/directory/directory_names.h"
#include "swap/spill/spill_file.h"
#include "tests/aio/fakes/faulty_backend.h"
#include "tests/aio/fakes/forwarding_backend.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/refusal.h"
#include "tests/seeds.h"
#include "tests/swap/directory/mounts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <utility>

namespace penstock::testing {
namespace {

using store::SpillBlock;

struct TestSpill final : store::SpillOperation {
    int finished = 0;
    void spill_done() noexcept override { ++finished; }
};

// Each attempt may be answered instead of carried out: a result of bytes or -errno.
class AnsweringBackend final : public ForwardingBackend {
   public:
    using Answer = std::function<std::optional<std::int32_t>(const aio::Attempt&)>;
    AnsweringBackend(std::unique_ptr<aio::Backend> inner, const Answer& answer)
        : ForwardingBackend(std::move(inner)), answer_(answer) {}
    bool submit(aio::Attempt& attempt) override {
        const auto answered = answer_ ? answer_(attempt) : std::nullopt;
        if (!answered) return inner_->submit(attempt);
        attempt.result = *answered;
        attempt.next = std::exchange(answered_, &attempt);
        return true;
    }
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        return answered_ != nullptr ? std::exchange(answered_, nullptr) : inner_->reap(timeout);
    }
    const char* name() const noexcept override { return "answering"; }

   private:
    const Answer& answer_;
    aio::Attempt* answered_ = nullptr;
};

std::vector<std::string> names_in(const store::StoreDirectory& directory) {
    std::vector<std::string> names;
    EXPECT_EQ(store::list_names(directory.fd(), names), 0);
    return names;
}

class SpillTest : public ::testing::Test {
   protected:
    std::optional<store::StoreError> run(TestSpill& operation) {
        while (!operation.idle()) io.wait(std::chrono::seconds(1));
        EXPECT_EQ(std::exchange(operation.finished, 0), 1);
        return operation.error();
    }
    std::optional<store::StoreError> write(SpillBlock block, std::span<std::byte> memory) {
        TestSpill operation;
        spill.write(operation, block, memory, aio::Urgency::write_back);
        return run(operation);
    }
    std::optional<store::StoreError> read(SpillBlock block, std::span<std::byte> memory) {
        TestSpill operation;
        spill.read(operation, block, memory, aio::Urgency::prefetch);
        return run(operation);
    }
    // Of the seed, written to the block.
    void put(SpillBlock block, std::uint64_t seed) {
        aio::ScratchMemory memory(spill.block_bytes(block));
        aio::fill_random(memory.span(), seed);
        ASSERT_FALSE(write(block, memory.span()));
    }
    bool has(SpillBlock block, std::uint64_t seed) {
        aio::ScratchMemory wanted(spill.block_bytes(block)), found(spill.block_bytes(block));
        aio::fill_random(wanted.span(), seed);
        const auto error = read(block, found.span());
        EXPECT_FALSE(error) << error->message;
        return std::equal(wanted.span().begin(), wanted.span().end(), found.span().begin());
    }
    void expect_names_place(const store::StoreError& error, SpillBlock block, const std::string& cause) {
        for (const std::string& part :
             {directory.path() + "/penstock.spill", fmt::format("block {}", block.index), std::string("at offset "),
              fmt::format("({} bytes)", spill.block_bytes(block)), cause})
            EXPECT_NE(error.message.find(part), std::string::npos) << part << " is not in: " << error.message;
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch / "store", "test"};
    store::StoreDirectory second{scratch / "second", "test"};
    AnsweringBackend::Answer answer;
    aio::Io io{
        std::make_unique<AnsweringBackend>(aio::make_thread_backend({.depth = 16, .threads_per_device = 2}), answer),
        {}};
    store::Spill spill{io, {&directory}, {}};
};

TEST_F(SpillTest, WhatWasWrittenLastComesBackWhateverItsLength) {
    std::vector<SpillBlock> blocks;
    for (const std::uint64_t bytes : {1UL, 4096UL, 4097UL, 300000UL, 3UL << 20})
        blocks.push_back(spill.allocate(bytes));
    EXPECT_EQ(spill.block_bytes(blocks[0]), 4096U);
    EXPECT_EQ(spill.block_bytes(blocks[2]), 8192U);
    for (std::uint64_t round = 0; round < 3; ++round) {
        for (const SpillBlock block : blocks) put(block, 10 * round + block.index);
        blocks.push_back(spill.allocate(round + 1));
        put(blocks.back(), 10 * round + blocks.back().index);
        for (const SpillBlock block : blocks) EXPECT_TRUE(has(block, 10 * round + block.index)) << block.index;
        EXPECT_TRUE(has(blocks.front(), 10 * round)) << "read twice";
    }
}

TEST_F(SpillTest, ItsBytesAreThoseOfTheIo) {
    const SpillBlock one = spill.allocate(5000), other = spill.allocate(1 << 20);
    put(one, 1);
    put(other, 2);
    put(one, 3);
    EXPECT_TRUE(has(other, 2));
    EXPECT_EQ(spill.write_bytes(), 2 * 8192U + (1U << 20));
    EXPECT_EQ(spill.read_bytes(), 1U << 20);
    EXPECT_EQ(spill.write_bytes(), io.statistics().total_write_bytes());
    EXPECT_EQ(spill.read_bytes(), io.statistics().total_read_bytes());
    EXPECT_EQ(spill.reserved_bytes(), 8192U + (1U << 20));
}

TEST_F(SpillTest, NothingOfItIsSeenOrLeft) {
    const std::vector<std::string> before = names_in(directory);
    {
        store::Spill other(io, {&directory, &second}, {});
        other.allocate(1 << 20);
        EXPECT_EQ(names_in(directory), before);
    }
    EXPECT_EQ(names_in(directory), before);
}

TEST_F(SpillTest, WhereThereAreNoFilesWithoutANameItHasOneForAMoment) {
    const std::vector<std::string> before = names_in(directory);
    std::ofstream(directory.path() + "/" + store::spill_file_name) << "left by a kill";
    aio::File file = store::make_spill_file_by_name(directory, aio::Caching::direct);
    EXPECT_EQ(names_in(directory), before);
    struct stat status = {};
    ASSERT_EQ(::fstat(file.fd(), &status), 0);
    EXPECT_EQ(status.st_nlink, 0U);
    EXPECT_EQ(status.st_size, 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    const aio::File usual = store::make_spill_file(directory, aio::Caching::direct);
    EXPECT_EQ(file.direct(), usual.direct());
    file.reserve(1 << 20);
    EXPECT_EQ(file.bytes(), 1U << 20);
}

TEST_F(SpillTest, WhatAKillLeftInThatMomentKeepsNoNewStoreAway) {
    const std::string path = scratch / "third";
    ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
    std::ofstream(path + "/" + store::spill_file_name);
    const store::StoreDirectory third(path, "test");
    EXPECT_EQ(third.content(), store::DirectoryContent::nothing);
}

TEST_F(SpillTest, AnotherThingOfThatNameIsNamed) {
    ASSERT_EQ(::mkdir((directory.path() + "/" + store::spill_file_name).c_str(), 0700), 0);
    const std::string refusal =
        refusal_of(ExitCode::storage, [&] { store::make_spill_file_by_name(directory, aio::Caching::direct); });
    EXPECT_NE(refusal.find(directory.path() + "/penstock.spill cannot be removed"), std::string::npos) << refusal;
}

TEST_F(SpillTest, DevicesShareTheBytes) {
    store::Spill shared(io, {&directory, &second}, {.shares = {1, 3}});
    std::uint64_t all = 0;
    for (const std::uint64_t pages : {1U, 100U, 3U, 7U, 50U, 1U, 1U, 900U, 12U, 400U, 33U})
        all += shared.block_bytes(shared.allocate(pages * 4096));
    std::uint64_t first_bytes = 0;
    for (std::uint32_t index = 0; index < 11; ++index) {
        TestSpill operation;
        const std::uint64_t bytes = shared.block_bytes({index});
        aio::ScratchMemory memory(bytes);
        aio::fill_random(memory.span(), index);
        answer = [](const aio::Attempt&) { return std::optional<std::int32_t>(-EIO); };  // which names the file
        shared.write(operation, {index}, memory.span(), aio::Urgency::write_back);
        const auto error = run(operation);
        ASSERT_TRUE(error);
        if (error->message.find(directory.path()) != std::string::npos) first_bytes += bytes;
    }
    answer = {};
    EXPECT_NEAR(static_cast<double>(first_bytes), static_cast<double>(all) / 4, 900 * 4096 / 2);
    EXPECT_EQ(shared.reserved_bytes(), all);
}

TEST_F(SpillTest, OneWrongReadIsReadAgainAndNotedTwoAreDamage) {
    const SpillBlock block = spill.allocate(10000);
    put(block, 1);
    int wrong = 0;
    answer = [&](const aio::Attempt& attempt) -> std::optional<std::int32_t> {
        if (attempt.kind != aio::IoKind::read || wrong == 0) return std::nullopt;
        --wrong;
        std::fill_n(attempt.data, attempt.bytes, std::byte{0});
        return static_cast<std::int32_t>(attempt.bytes);
    };
    wrong = 1;
    EXPECT_TRUE(has(block, 1));
    const auto noted = [&] {
        return std::count_if(spill.notes().begin(), spill.notes().end(),
                             [](const std::string& note) { return note.find("read wrong once") != std::string::npos; });
    };
    EXPECT_EQ(noted(), 1);
    EXPECT_EQ(spill.read_bytes(), 2 * spill.block_bytes(block));
    wrong = 2;
    aio::ScratchMemory memory(spill.block_bytes(block));
    TestSpill operation;
    spill.read(operation, block, memory.span(), aio::Urgency::prefetch);
    const auto error = run(operation);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind, store::StoreError::Kind::damaged);
    expect_names_place(*error, block, "not the ones that were written");
    EXPECT_EQ(noted(), 1);
    wrong = 1;
    spill.read(operation, block, memory.span(), aio::Urgency::prefetch);
    EXPECT_FALSE(run(operation)) << "its next reading has two tries, too";
    EXPECT_EQ(noted(), 2);
}

TEST_F(SpillTest, ALostWriteIsFound) {
    const SpillBlock block = spill.allocate(4096);
    put(block, 1);
    put(block, 2);
    answer = [&](const aio::Attempt& attempt) -> std::optional<std::int32_t> {
        if (attempt.kind != aio::IoKind::write) return std::nullopt;
        return static_cast<std::int32_t>(attempt.bytes);
    };
    put(block, 1);
    aio::ScratchMemory memory(4096);
    const auto error = read(block, memory.span());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind, store::StoreError::Kind::damaged);
}

TEST_F(SpillTest, AnErrorOfTheDeviceIsNamedAndTheBlockMayBeWrittenAgain) {
    const SpillBlock block = spill.allocate(4096);
    aio::ScratchMemory memory(4096);
    for (const aio::IoKind kind : {aio::IoKind::write, aio::IoKind::read}) {
        put(block, 3);
        answer = [&](const aio::Attempt& attempt) {
            return attempt.kind == kind ? std::optional<std::int32_t>(-EIO) : std::nullopt;
        };
        const auto error = kind == aio::IoKind::write ? write(block, memory.span()) : read(block, memory.span());
        answer = {};
        ASSERT_TRUE(error);
        EXPECT_EQ(error->kind, store::StoreError::Kind::io);
        expect_names_place(*error, block, "EIO");
    }
    put(block, 4);
    EXPECT_TRUE(has(block, 4));
}

TEST_F(SpillTest, AFullDiskIsSaidWhenABlockIsAllocatedAndTheOthersStay) {
    const std::string path = scratch / "small";
    ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
    const MountOutcome outcome = run_with_mounts(
        [&] { return mount_tmpfs(path, 8 << 20); },
        [&]() -> std::string {
            store::StoreDirectory small(path, "test");
            store::Spill tight(io, {&small}, {.instead = "Or keep them in host memory."});
            const SpillBlock block = tight.allocate(4 << 20);
            const std::string refusal = refusal_of(ExitCode::does_not_fit, [&] { tight.allocate(16 << 20); });
            for (const char* part :
                 {path.c_str(), "bytes are missing", "free some space", "Or keep them in host memory."})
                if (refusal.find(part) == std::string::npos) return fmt::format("no '{}' in: {}", part, refusal);
            if (tight.reserved_bytes() != 4 << 20) return "what was refused counts";
            return tight.allocate(1 << 20).index == block.index + 1 ? "as it should be" : "a number is left out";
        });
    if (!outcome.allowed) GTEST_SKIP() << "this machine lets nobody mount";
    EXPECT_EQ(outcome.text, "as it should be");
}

// Whatever a device does, a read that ends without an error has given what was written.
TEST(SpillFaults, NoWrongByteComesBack) {
    const std::uint64_t first = first_seed(), count = seed_count(20);
    std::uint64_t right = 0, failed = 0;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        SCOPED_TRACE(replay(seed));
        const TemporaryDirectory scratch(aio::quick_temporary_path());
        store::StoreDirectory directory(scratch / "store", "test");
        aio::Io io(
            std::make_unique<aio::FaultyBackend>(aio::make_thread_backend({.depth = 16, .threads_per_device = 1}),
                                                 aio::FaultChances{.short_transfer = 10,
                                                                   .io_error = 1,
                                                                   .again = 5,
                                                                   .interrupted = 5,
                                                                   .delay = 30,
                                                                   .wrong_read = 3,
                                                                   .wrong_write = 3,
                                                                   .misdirected = 3,
                                                                   .lost = 3},
                                                 512, seed),
            {.chunk_bytes = 16384});
        store::Spill spill(io, {&directory}, {});
        std::mt19937_64 random(seed);
        std::vector<SpillBlock> blocks;
        for (int i = 0; i < 8; ++i) blocks.push_back(spill.allocate(1 + random() % 100000));
        const auto run = [&](TestSpill& operation) {
            while (!operation.idle()) io.wait(std::chrono::seconds(1));
            return operation.error().has_value();
        };
        std::vector<std::optional<std::uint64_t>> held(blocks.size());
        for (int i = 0; i < 200; ++i) {
            const SpillBlock block = blocks[random() % blocks.size()];
            aio::ScratchMemory memory(spill.block_bytes(block)), wanted(spill.block_bytes(block));
            TestSpill operation;
            if (!held[block.index] || random() % 2 == 0) {
                held[block.index] = random();
                aio::fill_random(memory.span(), *held[block.index]);
                spill.write(operation, block, memory.span(), aio::Urgency::write_back);
                if (run(operation)) held[block.index].reset();
                continue;
            }
            aio::fill_random(wanted.span(), *held[block.index]);
            spill.read(operation, block, memory.span(), aio::Urgency::demand);
            const bool error = run(operation);
            ++(error ? failed : right);
            if (!error) {
                ASSERT_TRUE(std::equal(wanted.span().begin(), wanted.span().end(), memory.span().begin()));
            }
        }
    }
    // Of 1,500 reads some 930 were right with direct I/O and 560 failed; through the page cache 540 and 680.
    EXPECT_GT(right, failed / 2);
    EXPECT_GT(failed, 0U);
}

using SpillDeath = SpillTest;

TEST_F(SpillDeath, ABlockHasOneOperationAtATimeAndIsWrittenFirst) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const SpillBlock block = spill.allocate(4096);
    aio::ScratchMemory memory(8192);
    EXPECT_DEATH(
        {
            TestSpill one;
            TestSpill other;
            spill.write(one, block, memory.span(), aio::Urgency::write_back);
            spill.read(other, block, memory.span().subspan(4096), aio::Urgency::demand);
        },
        "while another is in flight");
    EXPECT_DEATH(
        {
            TestSpill one;
            spill.read(one, block, memory.span(), aio::Urgency::demand);
        },
        "was never written");
    EXPECT_DEATH(
        {
            TestSpill one;
            spill.write(one, block, memory.span().subspan(512), aio::Urgency::write_back);
        },
        "is not aligned");
}

}  // namespace
}  // namespace penstock::testing
