// What the way between the ranks gives: whether its sums are right, and how fast it is.
#pragma once

#include "zero_infinity/ranks/transport.h"

#include <cstdint>

namespace penstock::zero {

struct RankRates {
    double small_seconds = 0;  // of a small call, the median
    double gather_rate = 0;    // bytes a second that come to this rank from others
    double exchange_rate = 0;  // the same of addends, their sum beside it
    double sum_rate = 0;       // bytes of addends a second that the sum alone takes
};

// All ranks call it at once; with one rank only sum_rate is not 0. `bytes` of one rank's part are moved a few times,
// ranks times as many are in memory. Throws what the transports throw, and Error (internal) where a sum has not the
// bits of the loop over the ranks: the transport has mixed up blocks. REQUIRES: bytes is a multiple of 4 and not 0.
RankRates probe_ranks(Transport& bulk, Transport& control, std::uint64_t bytes);

}  // namespace penstock::zero
