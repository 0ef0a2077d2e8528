#include "tests/aio/faulty_backend.h"

#include "aio/check.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock {

FaultyBackend::FaultyBackend(std::unique_ptr<Backend> inner, FaultChances chances, std::uint32_t alignment_bytes,
                             std::uint64_t seed)
    : inner_(std::move(inner)), chances_(chances), alignment_bytes_(alignment_bytes), random_(seed) {
    places_.resize(inner_->depth());
    for (Place& place : places_) free_.push_back(&place);
}

bool FaultyBackend::submit(Attempt& attempt) {
    if (free_.empty()) return false;
    Place& place = *free_.back();
    free_.pop_back();
    place = Place{};
    static_cast<Attempt&>(place) = attempt;
    place.outer = &attempt;
    if (strikes(chances_.delay)) {
        place.delay = 1 + static_cast<int>(random_() % 5);
        ++counts_.delayed;
    }
    bool no_bytes = false;
    if (const int error = refusal(attempt, no_bytes); error != 0 || no_bytes) {
        place.result = -error;
        ready_.push_back(&place);
        return true;
    }
    if (attempt.kind != IoKind::flush && attempt.bytes > 1 && strikes(chances_.short_transfer)) shorten(place);
    if (place.bytes == 0 && attempt.kind != IoKind::flush) {  // a short write of less than one block wrote nothing
        finish(place);
        return true;
    }
    const bool taken = inner_->submit(place);
    PENSTOCK_CHECK(taken, "the inner backend is full");
    return true;
}

int FaultyBackend::refusal(const Attempt& attempt, bool& no_bytes) {
    if (again_left_ == 0 && strikes(chances_.again)) again_left_ = chances_.again_burst;
    if (again_left_ > 0) {
        --again_left_;
        ++counts_.passing;
        return EAGAIN;
    }
    if (strikes(chances_.interrupted)) {
        ++counts_.passing;
        return EINTR;
    }
    if (strikes(chances_.io_error)) {
        ++counts_.fatal;
        return EIO;
    }
    if (attempt.kind != IoKind::read && strikes(chances_.no_space)) {
        ++counts_.fatal;
        return ENOSPC;
    }
    no_bytes = attempt.kind != IoKind::flush && strikes(chances_.no_bytes);
    if (no_bytes) ++counts_.fatal;
    return 0;
}

// A count of 1 to bytes - 1. The inner attempt stays aligned: a read moves a little more, a write a little less, than
// is reported, so a caller that trusts the bytes after the last aligned one finds the wrong ones there.
void FaultyBackend::shorten(Place& place) {
    place.shortened = true;
    place.reported_bytes = 1 + static_cast<std::uint32_t>(random_() % (place.bytes - 1));
    const std::uint32_t whole = place.reported_bytes / alignment_bytes_ * alignment_bytes_;
    const std::uint32_t more = place.reported_bytes == whole ? whole : whole + alignment_bytes_;
    place.bytes = place.kind == IoKind::read ? more : whole;
    ++counts_.short_transfers;
}

Attempt* FaultyBackend::reap(std::chrono::nanoseconds timeout) {
    Attempt* finished = inner_->reap(ready_.empty() ? timeout : std::chrono::nanoseconds(0));
    while (finished != nullptr) {
        Attempt* attempt = std::exchange(finished, finished->next);
        finish(static_cast<Place&>(*attempt));
    }
    return release();
}

void FaultyBackend::finish(Place& place) {
    const bool failed = place.bytes > 0 && place.result < 0;
    if (place.shortened && !failed) {
        place.result = static_cast<std::int32_t>(place.reported_bytes);
        if (place.kind == IoKind::read) {
            std::memset(place.outer->data + place.reported_bytes, 0xdb, place.outer->bytes - place.reported_bytes);
        }
    }
    ready_.push_back(&place);
}

// In random order; at least one when any is ready, so that a delay is never a hang.
Attempt* FaultyBackend::release() {
    if (chances_.delay > 0) std::shuffle(ready_.begin(), ready_.end(), random_);
    const auto first = std::partition(ready_.begin(), ready_.end(), [](Place* place) { return place->delay-- > 0; });
    const auto begin = first == ready_.end() && !ready_.empty() ? first - 1 : first;
    Attempt* list = nullptr;
    for (auto it = begin; it != ready_.end(); ++it) {
        Attempt* outer = (*it)->outer;
        outer->result = (*it)->result;
        outer->next = std::exchange(list, outer);
        free_.push_back(*it);
    }
    ready_.erase(begin, ready_.end());
    return list;
}

}  // namespace penstock
