#include "tests/zero_infinity/ranks/thread_ranks.h"

#include "aio/words/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

namespace penstock::testing {
namespace {

using zero::ConstRankBlocks;
using zero::RankBlocks;

struct Call {
    enum class Kind : std::uint8_t { gather, exchange } kind = Kind::gather;
    const std::byte* mine = nullptr;  // of a gather
    ConstRankBlocks to;               // of an exchange
    std::size_t bytes = 0;

    const std::byte* block_for(std::uint32_t rank) const { return kind == Kind::gather ? mine : to.of(rank); }
    bool same_as(const Call& other) const { return kind == other.kind && bytes == other.bytes; }
    std::string words() const {
        return fmt::format("{} of {} bytes", kind == Kind::gather ? "a gather" : "an exchange", bytes);
    }
};

}  // namespace

// Two meetings a call: all calls are there, and all have taken what they wanted.
class ThreadRanks::World {
   public:
    World(std::uint32_t ranks, ThreadMoods moods) : moods_(moods), calls_(ranks) {}

    const ThreadMoods& moods() const { return moods_; }
    std::uint32_t ranks() const { return static_cast<std::uint32_t>(calls_.size()); }
    std::string mismatch() const {
        const std::lock_guard lock(mutex_);
        return mismatch_;
    }

    const std::vector<Call>& meet(std::uint32_t rank, const Call& call) {
        std::unique_lock lock(mutex_);
        if (lost_) throw lost();
        calls_[rank] = call;
        if (!come(lock)) throw lost();
        const auto other = std::ranges::find_if(calls_, [&](const Call& each) { return !each.same_as(call); });
        if (other == calls_.end()) return calls_;
        if (mismatch_.empty()) mismatch_ = call.words() + " met " + other->words();
        lose_locked();
        throw lost();
    }
    // Whatever has happened in the meantime: others may be copying out of this rank's memory.
    void part() {
        std::unique_lock lock(mutex_);
        const std::uint64_t mine = meeting_;
        if (arrive()) return;
        changed_.wait(lock, [&] { return meeting_ != mine; });
    }
    void lose() {
        const std::lock_guard lock(mutex_);
        lose_locked();
    }
    static Error lost() { return {ExitCode::peer_lost, "a rank is lost"}; }

   private:
    // Whether this was the last one.
    bool arrive() {
        if (++here_ < ranks()) return false;
        here_ = 0;
        ++meeting_;
        changed_.notify_all();
        return true;
    }
    bool come(std::unique_lock<std::mutex>& lock) {
        const std::uint64_t mine = meeting_;
        if (arrive()) return true;
        const auto end = std::chrono::steady_clock::now() + moods_.deadline;
        changed_.wait_until(lock, end, [&] { return meeting_ != mine || lost_; });
        if (meeting_ != mine) return true;
        lose_locked();
        return false;
    }
    void lose_locked() {
        lost_ = true;
        changed_.notify_all();
    }

    ThreadMoods moods_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Call> calls_;
    std::uint32_t here_ = 0;
    std::uint64_t meeting_ = 0;
    bool lost_ = false;
    std::string mismatch_;
};

class ThreadRanks::Rank final : public zero::Transport {
   public:
    Rank(World& world, std::uint32_t rank) : world_(&world), rank_(rank), moods_(world.moods().seed * 64 + rank) {}

    std::uint32_t rank() const noexcept override { return rank_; }
    std::uint32_t ranks() const noexcept override { return world_->ranks(); }
    std::string name() const override { return "threads"; }
    void all_gather(std::span<const std::byte> mine, const RankBlocks& all) override {
        make({.kind = Call::Kind::gather, .mine = mine.data(), .to = {}, .bytes = mine.size()}, all);
    }
    void exchange(const ConstRankBlocks& to, const RankBlocks& from) override {
        make({.kind = Call::Kind::exchange, .mine = nullptr, .to = to, .bytes = to.bytes}, from);
    }
    void abort(std::string_view) noexcept override { world_->lose(); }
    std::uint64_t received() const { return received_; }

   private:
    void make(const Call& call, const RankBlocks& to) {
        ++calls_;
        meet_mishap();
        dawdle();
        const std::vector<Call>& all = world_->meet(rank_, call);
        for (std::uint32_t from = 0; from < ranks(); ++from) {
            const std::byte* block = all[from].block_for(rank_);
            if (call.bytes > 0 && block != to.of(from)) std::memcpy(to.of(from), block, call.bytes);
            if (from != rank_) received_ += call.bytes;
        }
        dawdle();
        world_->part();
    }
    void meet_mishap() {
        const Mishap& mishap = world_->moods().mishap;
        if (mishap.kind == Mishap::Kind::none || mishap.rank != rank_ || mishap.call != calls_) return;
        if (mishap.kind == Mishap::Kind::dies) world_->lose();
        if (mishap.kind == Mishap::Kind::stops) std::this_thread::sleep_for(2 * world_->moods().deadline);
        throw Error(ExitCode::internal, "this rank is gone");
    }
    void dawdle() {
        const auto most = world_->moods().most_delay.count();
        if (most > 0) std::this_thread::sleep_for(std::chrono::microseconds(static_cast<long>(moods_() % (most + 1))));
    }

    World* world_;
    std::uint32_t rank_;
    std::mt19937_64 moods_;
    std::uint64_t calls_ = 0;
    std::atomic<std::uint64_t> received_ = 0;
};

ThreadRanks::ThreadRanks(std::uint32_t ranks, ThreadMoods moods) : world_(std::make_unique<World>(ranks, moods)) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) all_.push_back(std::make_unique<Rank>(*world_, rank));
}

ThreadRanks::~ThreadRanks() = default;

zero::Transport& ThreadRanks::of(std::uint32_t rank) {
    return *all_.at(rank);
}

std::string ThreadRanks::mismatch() const {
    return world_->mismatch();
}

std::uint64_t ThreadRanks::bytes_received(std::uint32_t rank) const {
    return all_.at(rank)->received();
}

std::vector<std::string> run_ranks(std::uint32_t ranks, const std::function<void(std::uint32_t rank)>& body) {
    std::vector<std::string> thrown(ranks);
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            try {
                body(rank);
            } catch (const std::exception& error) {
                thrown[rank] = error.what();
            }
        });
    for (std::thread& each : threads) each.join();
    return thrown;
}

}  // namespace penstock::testing
