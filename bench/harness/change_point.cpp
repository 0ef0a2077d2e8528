#include "bench/harness/change_point.h"

#include "aio/words/check.h"

#include <limits>

namespace penstock::bench {
namespace {

constexpr std::size_t shortest_level = 4;
constexpr double fallen_below = 0.8;
constexpr double unexplained = 0.5;

struct Level {
    double mean = 0;
    double error = 0;  // sum of squared distances from the mean
};

Level level_of(const std::vector<double>& rates, std::size_t begin, std::size_t end) {
    Level level;
    for (std::size_t i = begin; i < end; ++i) level.mean += rates[i] / static_cast<double>(end - begin);
    for (std::size_t i = begin; i < end; ++i) level.error += (rates[i] - level.mean) * (rates[i] - level.mean);
    return level;
}

std::uint64_t bytes_before(const std::vector<RateSample>& samples, std::size_t end) {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < end; ++i) bytes += samples[i].bytes;
    return bytes;
}

double rate_from(const std::vector<RateSample>& samples, std::size_t begin) {
    double bytes = 0, seconds = 0;
    for (std::size_t i = begin; i < samples.size(); ++i) {
        bytes += static_cast<double>(samples[i].bytes);
        seconds += samples[i].seconds;
    }
    return bytes / seconds;
}

}  // namespace

std::optional<std::size_t> find_fall(const std::vector<RateSample>& samples) {
    std::vector<double> rates;
    for (const RateSample& sample : samples) {
        PENSTOCK_CHECK(sample.seconds > 0, "a sample of {} s", sample.seconds);
        rates.push_back(static_cast<double>(sample.bytes) / sample.seconds);
    }
    std::optional<std::size_t> found;
    double least_error = std::numeric_limits<double>::infinity();
    for (std::size_t split = shortest_level; split + shortest_level <= rates.size(); ++split) {
        const double error = level_of(rates, 0, split).error + level_of(rates, split, rates.size()).error;
        if (error >= least_error) continue;
        least_error = error;
        found = split;
    }
    if (!found) return std::nullopt;
    const double before = level_of(rates, 0, *found).mean;
    const double after = level_of(rates, *found, rates.size()).mean;
    const bool fell = after < fallen_below * before;
    const bool explained = least_error <= unexplained * level_of(rates, 0, rates.size()).error;
    return fell && explained ? found : std::nullopt;
}

SustainedRate sustained_rate(const std::vector<RateSample>& first, const std::vector<RateSample>& second) {
    PENSTOCK_CHECK(!second.empty(), "nothing was overwritten");
    const std::optional<std::size_t> early = find_fall(first);
    const std::optional<std::size_t> late = find_fall(second);
    SustainedRate result{.bytes_per_second = rate_from(second, late.value_or(0)), .cache_bytes = {}};
    if (early) {
        result.cache_bytes = bytes_before(first, *early);
    } else if (late) {
        result.cache_bytes = bytes_before(first, first.size()) + bytes_before(second, *late);
    }
    return result;
}

}  // namespace penstock::bench
