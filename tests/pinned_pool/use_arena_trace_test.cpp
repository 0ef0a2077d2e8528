// A use's arena against a model, on random requests of many sizes.
#include "pinned_pool/use_arena.h"
#include "tests/pinned_pool/addresses.h"
#include "tests/seeds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <vector>

namespace penstock::pool {
namespace {

constexpr std::size_t g = granule_bytes;
constexpr std::size_t mib = std::size_t{1} << 20;

// What an arena of many sizes should be, told by the taken ranges alone.
class Model {
   public:
    Model(const std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

    std::size_t first_fit(std::size_t bytes) const {  // bytes_ when there is none
        std::size_t at = 0;
        for (const auto& [begin, end] : taken_) {
            if (begin - at >= bytes) return at;
            at = end;
        }
        return bytes_ - at >= bytes ? at : bytes_;
    }
    std::size_t longest() const {
        std::size_t longest = 0;
        std::size_t at = 0;
        for (const auto& [begin, end] : taken_) {
            longest = std::max(longest, begin - at);
            at = end;
        }
        return std::max(longest, bytes_ - at);
    }
    std::size_t granted_bytes() const {
        std::size_t bytes = 0;
        for (const auto& [begin, end] : taken_) bytes += end - begin;
        return bytes;
    }

    void granted(std::size_t requested_bytes, const std::byte* data) {
        const auto begin = static_cast<std::size_t>(data - data_);
        const std::size_t bytes = (requested_bytes + g - 1) / g * g;
        EXPECT_EQ(begin, first_fit(bytes));
        EXPECT_TRUE(taken_.emplace(begin, begin + bytes).second);
        ++leases;
        requested += requested_bytes;
        requested_granted += bytes;
    }
    void refused(std::size_t requested_bytes) {
        EXPECT_EQ(first_fit((requested_bytes + g - 1) / g * g), bytes_);
        ++refusals;
        fragmented += requested_bytes <= bytes_ - granted_bytes();
    }
    void returned(const std::byte* data) { EXPECT_EQ(taken_.erase(static_cast<std::size_t>(data - data_)), 1U); }

    std::uint64_t leases = 0, requested = 0, requested_granted = 0, refusals = 0, fragmented = 0;

   private:
    const std::byte* data_;
    std::size_t bytes_;
    std::map<std::size_t, std::size_t> taken_;  // begin to end
};

struct Claimed {
    Block* block;
    std::uint32_t holds;
    bool leased;
};

// Ends one of the claims; false when it was the last.
bool end_one(UseArena& arena, Model& model, Claimed& claimed, std::uint64_t dice) {
    const std::byte* data = claimed.block->data;
    if (claimed.leased && (claimed.holds == 0 || dice % 2 == 0)) {
        claimed.leased = false;
        arena.end_lease(*claimed.block);
    } else {
        --claimed.holds;
        arena.end_hold(*claimed.block);
    }
    const bool claimed_still = claimed.leased || claimed.holds > 0;
    if (!claimed_still) model.returned(data);
    return claimed_still;
}

void expect_agreement(const UseArena& arena, const Model& model, const std::vector<Claimed>& all) {
    std::uint64_t parked = 0;
    for (const Claimed& claimed : all) parked += claimed.leased ? 0 : claimed.block->bytes;
    const UseFigures figures = arena.figures();
    ASSERT_EQ(figures.granted_bytes, model.granted_bytes());
    ASSERT_EQ(figures.parked_bytes, parked);
    ASSERT_EQ(figures.longest_free_bytes, model.longest());
    ASSERT_EQ(figures.leases, model.leases);
    ASSERT_EQ(figures.requested_bytes, model.requested);
    ASSERT_EQ(figures.requested_granted_bytes, model.requested_granted);
    ASSERT_EQ(figures.refused, model.refusals);
    ASSERT_EQ(figures.refused_fragmented, model.fragmented);
}

// Sizes from 1 byte to 64 MiB, each power of two as likely as the next; claims end in any order.
TEST(UseArena, AgreesWithAModelOnRandomTraces) {
    const std::uint64_t first = first_seed();
    std::printf("seeds from %llu\n", static_cast<unsigned long long>(first));
    const Addresses addresses(256 * mib);
    for (std::uint64_t seed = first; seed < first + seed_count(40); ++seed) {
        SCOPED_TRACE(replay(seed));
        std::mt19937_64 random(seed);
        Model model(addresses.data(), 256 * mib);
        Gauge pool;
        UseArena arena("use", addresses.span(), pool);
        std::vector<Claimed> all;
        for (int step = 0; step < 400; ++step) {
            if (all.empty() || random() % 3 == 0) {
                const auto scale = static_cast<std::size_t>(std::exp2(static_cast<double>(random() % 2600) / 100));
                const std::size_t bytes = 1 + random() % scale + scale / 2;
                Block* block = arena.take(bytes);
                if (block == nullptr) {
                    model.refused(bytes);
                    continue;
                }
                model.granted(bytes, block->data);
                const auto holds = static_cast<std::uint32_t>(random() % 3);
                block->claims += holds;
                all.push_back({block, holds, true});
            } else {
                std::swap(all[random() % all.size()], all.back());
                if (!end_one(arena, model, all.back(), random())) all.pop_back();
            }
            ASSERT_NO_FATAL_FAILURE(expect_agreement(arena, model, all));
        }
        for (Claimed& claimed : all) {
            while (end_one(arena, model, claimed, random())) {
            }
        }
        EXPECT_EQ(arena.figures().longest_free_bytes, 256 * mib);  // merged into one piece
        EXPECT_EQ(arena.figures().parked_bytes, 0U);
        EXPECT_EQ(pool.now(), 0U);
    }
}

}  // namespace
}  // namespace penstock::pool
