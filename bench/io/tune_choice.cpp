#include "bench/io/tune_choice.h"

#include "aio/words/check.h"

#include <algorithm>
#include <optional>
#include <set>

namespace penstock::bench {
namespace {

// The smallest point of the block whose rate reaches `wanted`; null when there is none.
const TunePoint* smallest(const std::vector<TunePoint>& points, std::uint32_t block, double TunePoint::*rate,
                          double wanted) {
    const TunePoint* found = nullptr;
    for (const TunePoint& point : points) {
        if (point.block_bytes != block || point.*rate < wanted) continue;
        if (found == nullptr || point.in_flight_bytes < found->in_flight_bytes) found = &point;
    }
    return found;
}

double best(const std::vector<TunePoint>& points, std::optional<std::uint32_t> block, double TunePoint::*rate) {
    double highest = 0;
    for (const TunePoint& point : points) {
        if (!block || point.block_bytes == *block) highest = std::max(highest, point.*rate);
    }
    return highest;
}

TuneChoice choice_of(const TunePoint& read, const TunePoint& write) {
    return {.block_bytes = read.block_bytes,
            .read_in_flight_bytes = read.in_flight_bytes,
            .write_in_flight_bytes = write.in_flight_bytes,
            .read_rate = read.read_rate,
            .write_rate = write.write_rate};
}

}  // namespace

TuneChoice choose_point(const std::vector<TunePoint>& points) {
    PENSTOCK_CHECK(!points.empty(), "no points");
    std::set<std::uint32_t> blocks;  // smallest first
    for (const TunePoint& point : points) blocks.insert(point.block_bytes);
    const double best_read = best(points, {}, &TunePoint::read_rate);
    const double best_write = best(points, {}, &TunePoint::write_rate);

    std::optional<TuneChoice> chosen;
    for (const std::uint32_t block : blocks) {
        const TunePoint* read = smallest(points, block, &TunePoint::read_rate, good_enough * best_read);
        const TunePoint* write = smallest(points, block, &TunePoint::write_rate, good_enough * best_write);
        if (read == nullptr || write == nullptr) continue;
        const auto sum = [](const TuneChoice& c) { return c.read_in_flight_bytes + c.write_in_flight_bytes; };
        const TuneChoice choice = choice_of(*read, *write);
        if (!chosen || sum(choice) < sum(*chosen)) chosen = choice;
    }
    if (chosen) return *chosen;

    std::uint32_t fairest = 0;
    double fairest_share = -1;
    for (const std::uint32_t block : blocks) {
        const double share = std::min(best(points, block, &TunePoint::read_rate) / best_read,
                                      best(points, block, &TunePoint::write_rate) / best_write);
        if (share > fairest_share) {
            fairest_share = share;
            fairest = block;
        }
    }
    const double read = good_enough * best(points, fairest, &TunePoint::read_rate);
    const double write = good_enough * best(points, fairest, &TunePoint::write_rate);
    return choice_of(*smallest(points, fairest, &TunePoint::read_rate, read),
                     *smallest(points, fairest, &TunePoint::write_rate, write));
}

}  // namespace penstock::bench
