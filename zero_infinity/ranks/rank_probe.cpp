#include "zero_infinity/ranks/rank_probe.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/ranks/lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

namespace penstock::zero {
namespace {

constexpr std::uint32_t rounds = 5;
constexpr std::uint32_t small_rounds = 41;
constexpr std::size_t largest_piece = std::size_t{8} << 20;
using Floats = std::vector<float>;

// What rank `rank` adds to element `i`: numbers of which a sum in another order is another one.
float addend_of(std::uint32_t rank, std::uint64_t i) {
    const std::uint64_t drawn = (i * 2654435761U + rank * 40503U) % 1000003U;
    constexpr std::array size{1.0e-3F, -1.3F, 1.7e3F};
    return static_cast<float>(drawn) * size[rank % size.size()];
}

class Probe {
   public:
    Probe(Transport& bulk, Transport& control, std::uint64_t bytes)
        : ranks_(bulk.ranks()),
          rank_(bulk.rank()),
          numel_(bytes / sizeof(float)),
          part_(numel_),
          all_(numel_ * ranks_),
          area_(ranks_ * std::min<std::size_t>(largest_piece, bytes)),
          lane_(bulk, control, area_, {.units = {"the probe"}, .piece_bytes = area_.size() / ranks_}) {}

    RankRates run() {
        check_sum();
        RankRates rates;
        if (ranks_ > 1) {
            rates.small_seconds = median_of(small_rounds, [&] { small(); });
            const auto from_others = static_cast<double>((ranks_ - 1) * numel_ * sizeof(float));
            rates.gather_rate = from_others / median_of(rounds, [&] { gather(); });
            rates.exchange_rate = from_others / median_of(rounds, [&] { reduce(); });
        }
        rates.sum_rate = static_cast<double>(all_.size() * sizeof(float)) / median_of(rounds, [&] { sum(); });
        lane_.finish();
        return rates;
    }

   private:
    std::span<std::byte> part() { return std::as_writable_bytes(std::span(part_)); }
    std::span<std::byte> all() { return std::as_writable_bytes(std::span(all_)); }

    void check_sum() {
        for (std::uint64_t i = 0; i < all_.size(); ++i) all_[i] = addend_of(rank_, i);
        reduce();
        for (std::uint64_t i = 0; i < numel_; ++i) {
            float expected = addend_of(0, rank_ * numel_ + i);
            for (std::uint32_t rank = 1; rank < ranks_; ++rank) expected += addend_of(rank, rank_ * numel_ + i);
            if (part_[i] != expected)
                throw Error(ExitCode::internal,
                            fmt::format("a sum over {} ranks is wrong at element {} of rank {}: {} and not {}; what "
                                        "moves bytes between the ranks has mixed them up",
                                        ranks_, i, rank_, part_[i], expected));
        }
    }
    void small() {
        const std::array<std::byte, 64> mine{};
        small_.resize(ranks_ * mine.size());
        lane_.wait(lane_.post_small("a probe", mine, small_));
    }
    void gather() { lane_.wait(lane_.post_gather(0, {part(), all()}, Inputs::there)); }
    void reduce() { lane_.wait(lane_.post_reduce(0, {.addend = all(), .sum = part()}, Inputs::there)); }
    void sum() {
        std::vector<const std::byte*> addends(ranks_);
        for (std::uint32_t rank = 0; rank < ranks_; ++rank) addends[rank] = all().data() + rank * part().size();
        sum_in_order(addends, PlaneType::fp32, SumOf::total, SumStart::fresh, PlaneType::fp32, part().data(), numel_);
    }

    template <typename Work>
    static double median_of(std::uint32_t times, Work work) {
        std::vector<double> seconds;
        for (std::uint32_t i = 0; i < times; ++i) {
            const auto begin = std::chrono::steady_clock::now();
            work();
            seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        }
        std::ranges::nth_element(seconds, seconds.begin() + times / 2);
        return seconds[times / 2];
    }

    std::uint32_t ranks_, rank_;
    std::uint64_t numel_;  // of a part
    Floats part_, all_;
    std::vector<std::byte> small_, area_;
    Lane lane_;
};

}  // namespace

RankRates probe_ranks(Transport& bulk, Transport& control, std::uint64_t bytes) {
    PENSTOCK_CHECK(bytes > 0 && bytes % sizeof(float) == 0, "{} bytes are no whole elements", bytes);
    return Probe(bulk, control, bytes).run();
}

}  // namespace penstock::zero
