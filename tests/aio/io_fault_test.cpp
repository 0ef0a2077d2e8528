// The fault matrix: each fault x each backend x read and write x direct and buffered ends in right data or a clear
// error, never silence, never a hang. Replay one run: PENSTOCK_SEED=<seed> tests_aio --gtest_filter='*<name of the
// case>*'
#include "aio/file.h"
#include "aio/io.h"
#include "tests/aio/faulty_backend.h"
#include "tests/aio/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

namespace penstock {
namespace {

struct Fault {
    const char* name;
    FaultChances chances;
    std::set<int> errors;  // that may be reported; 0 is a count of nothing
};

const std::vector<Fault>& faults() {
    static const std::vector<Fault> all = {
        {"none", {}, {}},
        {"short_transfer", {.short_transfer = 50}, {0}},
        {"no_bytes", {.no_bytes = 5}, {0}},
        {"io_error", {.io_error = 5}, {EIO}},
        {"no_space", {.no_space = 10}, {ENOSPC}},
        {"again", {.again = 10, .again_burst = 3}, {EAGAIN}},
        {"again_for_ever", {.again = 5, .again_burst = 1000}, {EAGAIN}},
        {"interrupted", {.interrupted = 30}, {EINTR}},
        {"delay", {.delay = 60}, {}},
        {"all",
         {.short_transfer = 20,
          .no_bytes = 1,
          .io_error = 1,
          .no_space = 1,
          .again = 3,
          .again_burst = 2,
          .interrupted = 5,
          .delay = 20},
         {0, EIO, ENOSPC, EAGAIN, EINTR}},
    };
    return all;
}

constexpr std::size_t block = 4096;
constexpr std::size_t file_blocks = 32;
constexpr std::size_t file_bytes = file_blocks * block;
constexpr int tries = 8;

struct Counted : Transfer {
    int dones = 0;
    void done() noexcept override { ++dones; }
};

struct Piece {
    std::size_t begin = 0;
    std::size_t bytes = 0;
    Counted transfer;
};

// Building and closing a ring takes longer than a trial: all trials of a case share one backend.
class Borrowed final : public Backend {
   public:
    Borrowed(Backend& backend, std::size_t depth) : backend_(backend), depth_(depth) {}
    bool submit(Attempt& attempt) override { return backend_.submit(attempt); }
    Attempt* reap(std::chrono::nanoseconds timeout) override { return backend_.reap(timeout); }
    void wake() noexcept override { backend_.wake(); }
    std::size_t depth() const noexcept override { return depth_; }
    const char* name() const noexcept override { return backend_.name(); }

   private:
    Backend& backend_;
    std::size_t depth_;
};

struct Outcome {
    std::uint64_t errors = 0;
    FaultCounts counts;
};

class Trial {
   public:
    Trial(const Fault& fault, Backend& backend, IoKind direction, Caching caching, std::uint64_t seed)
        : fault_(fault), backend_(backend), direction_(direction), caching_(caching), seed_(seed), random_(seed) {}

    Outcome operator()(const std::string& path) {
        File file(AT_FDCWD, path, path, {.mode = FileMode::read_write, .caching = caching_});
        auto inner = std::make_unique<Borrowed>(backend_, 1 + random_() % 16);
        auto owned =
            std::make_unique<FaultyBackend>(std::move(inner), fault_.chances, file.alignment().offset_bytes, seed_);
        const FaultyBackend& faulty = *owned;
        Io io(std::move(owned), {.chunk_bytes = static_cast<std::uint32_t>(block << random_() % 3),
                                 .in_flight_bytes = block << random_() % 5,
                                 .tries = tries});
        prepare(file);
        start_all(io, file);
        drain(io);
        if (direction_ == IoKind::write && random_() % 4 == 0) flush(io, file);  // some: they take most of the time
        Outcome outcome{.errors = errors_, .counts = faulty.counts()};
        verify(file, io, outcome);
        outcome.errors = errors_;
        return outcome;
    }

   private:
    // Reads: the file is random and memory is rubbish. Writes: the other way round.
    void prepare(const File& file) {
        fill_random(content_.span(), seed_);
        std::memset(other_.data(), 0x55, file_bytes);
        const std::byte* in_file = direction_ == IoKind::read ? content_.data() : other_.data();
        ASSERT_EQ(::pwrite(file.fd(), in_file, file_bytes, 0), static_cast<ssize_t>(file_bytes));
    }

    void start_all(Io& io, const File& file) {
        std::byte* memory = direction_ == IoKind::read ? other_.data() : content_.data();
        std::size_t at = random_() % 3;
        while (at < file_blocks) {
            const std::size_t length = std::min(1 + random_() % 12, file_blocks - at);
            pieces_.push_back(std::make_unique<Piece>());
            Piece& piece = *pieces_.back();
            piece.begin = at * block;
            piece.bytes = length * block;
            io.start(piece.transfer, {.kind = direction_,
                                      .file = &file,
                                      .data = memory + piece.begin,
                                      .offset_bytes = piece.begin,
                                      .bytes = piece.bytes,
                                      .urgency = static_cast<Urgency>(random_() % urgency_count)});
            at += length + random_() % 3;
        }
    }

    static void drain(Io& io) {
        for (int rounds = 0; !io.idle(); ++rounds) {
            ASSERT_LT(rounds, 100000) << "the Io does not come to an end";
            io.wait(std::chrono::seconds(1));
        }
    }

    void flush(Io& io, const File& file) {
        io.start(flush_, {.kind = IoKind::flush, .file = &file});
        drain(io);
        EXPECT_EQ(flush_.dones, 1);
        examine(flush_, file);
    }

    void examine(const Transfer& transfer, const File& file) {
        if (!transfer.error()) return;
        ++errors_;
        const IoError& error = *transfer.error();
        EXPECT_TRUE(fault_.errors.count(error.errno_value)) << error.message();
        EXPECT_EQ(error.path, file.path());
        EXPECT_EQ(error.kind, transfer.request().kind);
        EXPECT_GE(error.tries, 1);
        EXPECT_LE(error.tries, tries);
        if (error.errno_value == EAGAIN || error.errno_value == EINTR) {
            EXPECT_EQ(error.tries, tries);
        }
        if (error.kind == IoKind::flush) return;
        EXPECT_GE(error.offset_bytes, transfer.request().offset_bytes);
        EXPECT_LE(error.offset_bytes + error.bytes, transfer.request().offset_bytes + transfer.request().bytes);
        EXPECT_GT(error.bytes, 0U);
    }

    void verify(const File& file, const Io& io, const Outcome& outcome) {
        if (direction_ == IoKind::write) {
            ASSERT_EQ(::pread(file.fd(), other_.data(), file_bytes, 0), static_cast<ssize_t>(file_bytes));
        }
        std::uint64_t asked = 0;
        for (const auto& piece : pieces_) {
            EXPECT_EQ(piece->transfer.dones, 1);
            examine(piece->transfer, file);
            asked += piece->bytes;
            if (piece->transfer.error()) continue;
            EXPECT_EQ(std::memcmp(content_.data() + piece->begin, other_.data() + piece->begin, piece->bytes), 0)
                << "wrong data without an error at " << piece->begin;
        }
        if (errors_ == 0) {
            EXPECT_EQ(io.statistics().total_read_bytes() + io.statistics().total_write_bytes(), asked);
            EXPECT_EQ(outcome.counts.fatal, 0U) << "a fatal fault was not reported";
        }
    }

    const Fault& fault_;
    Backend& backend_;
    IoKind direction_;
    Caching caching_;
    std::uint64_t seed_;
    std::mt19937_64 random_;
    ScratchMemory content_{file_bytes};
    ScratchMemory other_{file_bytes};
    std::vector<std::unique_ptr<Piece>> pieces_;
    Counted flush_;
    std::uint64_t errors_ = 0;
};

class IoFaults : public ::testing::TestWithParam<std::tuple<std::size_t, BackendKind>> {};

TEST_P(IoFaults, EndInRightDataOrAClearError) {
    const Fault& fault = faults()[std::get<0>(GetParam())];
    const BackendKind kind = std::get<1>(GetParam());
    const ScratchDirectory directory;
    const std::string path = directory.file("data");
    File(AT_FDCWD, path, path, {.mode = FileMode::create}).reserve(file_bytes);
    std::unique_ptr<Backend> backend;
    try {
        const File probe(AT_FDCWD, path, path, {});
        backend = open_backend(probe.fd(), {.depth = 16, .thread_count = 2}, kind).backend;
    } catch (const Error& error) {
        GTEST_SKIP() << error.what();
    }

    const std::uint64_t first = first_seed();
    const std::uint64_t count = seed_count(30);
    std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(first + count - 1));
    Outcome sum;
    for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
        for (const IoKind direction : {IoKind::read, IoKind::write}) {
            for (const Caching caching : {Caching::direct, Caching::buffered}) {
                SCOPED_TRACE(::testing::Message()
                             << "replay with PENSTOCK_SEED=" << seed << ", " << to_string(direction)
                             << (caching == Caching::direct ? ", direct" : ", buffered"));
                const Outcome outcome = Trial(fault, *backend, direction, caching, seed)(path);
                sum.errors += outcome.errors;
                sum.counts.short_transfers += outcome.counts.short_transfers;
                sum.counts.fatal += outcome.counts.fatal;
                sum.counts.passing += outcome.counts.passing;
                sum.counts.delayed += outcome.counts.delayed;
            }
        }
    }
    if (count < 10) return;
    // The faults must have struck, or the runs have shown nothing.
    const FaultChances& chances = fault.chances;
    EXPECT_EQ(sum.counts.short_transfers > 0, chances.short_transfer > 0);
    EXPECT_EQ(sum.counts.fatal > 0, chances.no_bytes + chances.io_error + chances.no_space > 0);
    EXPECT_EQ(sum.counts.passing > 0, chances.again + chances.interrupted > 0);
    EXPECT_EQ(sum.counts.delayed > 0, chances.delay > 0);
    if (fault.errors.empty()) {
        EXPECT_EQ(sum.errors, 0U);
    }
}

INSTANTIATE_TEST_SUITE_P(All, IoFaults,
                         ::testing::Combine(::testing::Range(std::size_t{0}, std::size_t{10}),
                                            ::testing::Values(BackendKind::io_uring, BackendKind::threads)),
                         [](const auto& each) {
                             return std::string(faults()[std::get<0>(each.param)].name) +
                                    (std::get<1>(each.param) == BackendKind::io_uring ? "_io_uring" : "_threads");
                         });

}  // namespace
}  // namespace penstock
