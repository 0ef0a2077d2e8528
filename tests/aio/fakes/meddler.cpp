#include "tests/aio/fakes/meddler.h"

#include "aio/words/io_error.h"

#include <algorithm>
#include <array>

namespace penstock::aio {

Urgency draw_urgency(std::mt19937_64& random, IoKind direction) {
    const std::array of_reads{Urgency::demand, Urgency::prefetch, Urgency::scrub};
    const std::array of_writes{Urgency::demand, Urgency::write_back, Urgency::scrub};
    return (direction == IoKind::read ? of_reads : of_writes)[random() % 3];
}

void Meddled::done() noexcept {
    ++dones;
    if (meddler != nullptr) meddler->meddle();
}

void Meddler::meddle() noexcept {
    if (transfers_.empty() || static_cast<int>(random_() % 100) >= percent_) return;
    promote(*transfers_[random_() % transfers_.size()]);
}

// Before anything is issued it is known what must come of it; later it may be too late.
void Meddler::promote(Meddled& transfer) {
    const Urgency before = *transfer.request().urgency;
    const Urgency wanted = draw_urgency(random_, transfer.request().kind);
    io_.promote(transfer, wanted);
    const Urgency after = *transfer.request().urgency;
    if (after != before) ++promotions_;
    const Urgency right = std::min(before, wanted);
    if (after != right && !(begun_ && after == before)) complaints_.emplace_back("a promotion led to a wrong class");
}

}  // namespace penstock::aio
