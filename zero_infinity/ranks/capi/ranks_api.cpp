// The functions of penstock_ranks.h: arguments in, status out.
#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"
#include "zero_infinity/ranks/capi/transport_calls.h"
#include "zero_infinity/ranks/rank_probe.h"

namespace penstock::zero {
namespace {

constexpr std::uint64_t most_probe_bytes = std::uint64_t{1} << 30;

}  // namespace
}  // namespace penstock::zero

penstock_status penstock_ranks_probe(const penstock_ranks* ranks, uint64_t bytes, penstock_rank_rates* rates,
                                     penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        const std::size_t room = penstock::store::checked_struct(rates, sizeof rates->struct_bytes, "rates");
        const penstock::zero::RankCalls calls(ranks);
        penstock::store::require(bytes > 0 && bytes % 4 == 0 && bytes <= penstock::zero::most_probe_bytes,
                                 "{} bytes of a part: a multiple of 4, 1 GiB at most", bytes);
        penstock::zero::CalledTransport bulk(calls, PENSTOCK_BULK), control(calls, PENSTOCK_CONTROL);
        const penstock::zero::RankRates found = penstock::zero::probe_ranks(bulk, control, bytes);
        const penstock_rank_rates own{room, found.small_seconds, found.gather_rate, found.exchange_rate,
                                      found.sum_rate};
        penstock::store::put(own, *rates);
        return PENSTOCK_OK;
    });
}
