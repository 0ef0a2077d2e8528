#include "tests/aio/fakes/faulty_backend.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock::aio {
namespace {

void flip_bit(std::byte* data, std::uint32_t bytes, std::uint64_t bit) {
    bit %= std::uint64_t{bytes} * 8;
    data[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
}

}  // namespace

FaultCounts& FaultCounts::operator+=(const FaultCounts& other) {
    attempts += other.attempts;
    short_transfers += other.short_transfers;
    fatal += other.fatal;
    passing += other.passing;
    delayed += other.delayed;
    unaligned += other.unaligned;
    wrong_reads += other.wrong_reads;
    wrong_writes += other.wrong_writes;
    misdirected += other.misdirected;
    lost += other.lost;
    return *this;
}

FaultyBackend::FaultyBackend(std::unique_ptr<Backend> inner, FaultChances chances, std::uint32_t alignment_bytes,
                             std::uint64_t seed)
    : inner_(std::move(inner)), chances_(chances), alignment_bytes_(alignment_bytes), random_(seed) {
    places_.resize(inner_->depth());
    for (Place& place : places_) free_.push_back(&place);
}

bool FaultyBackend::submit(Attempt& attempt) {
    if (free_.empty()) return false;
    ++counts_.attempts;
    Place& place = place_for(attempt);
    if (strikes(chances_.delay)) {
        place.delay = 1 + static_cast<int>(random_() % 5);
        ++counts_.delayed;
    }
    if (ends_here(place)) {
        ready_.push_back(&place);
        return true;
    }
    const bool taken = inner_->submit(place);
    PENSTOCK_CHECK(taken, "the inner backend is full");
    return true;
}

FaultyBackend::Place& FaultyBackend::place_for(Attempt& attempt) {
    Place& place = *free_.back();
    free_.pop_back();
    place = Place{};
    static_cast<Attempt&>(place) = attempt;
    place.outer = &attempt;
    return place;
}

// Whether the attempt never reaches the inner backend; place.result is set then.
bool FaultyBackend::ends_here(Place& place) {
    if (is_refused(place)) return true;
    if (place.kind == IoKind::flush) return false;
    if (place.bytes > 1 && strikes(chances_.short_transfer)) {
        shorten(place);
        place.result = static_cast<std::int32_t>(place.reported_bytes);
        return place.bytes == 0;  // a short write of less than one block wrote nothing
    }
    return lies(place);
}

bool FaultyBackend::is_refused(Place& place) {
    if (place.kind != IoKind::flush &&
        (place.offset_bytes % alignment_bytes_ != 0 || place.bytes % alignment_bytes_ != 0)) {
        ++counts_.unaligned;
        return refuse(place, EINVAL);
    }
    if (again_left_ == 0 && strikes(chances_.again)) again_left_ = chances_.again_burst;
    if (again_left_ > 0) {
        --again_left_;
        ++counts_.passing;
        return refuse(place, EAGAIN);
    }
    if (strikes(chances_.interrupted)) {
        ++counts_.passing;
        return refuse(place, EINTR);
    }
    int fatal = -1;
    if (strikes(chances_.io_error)) {
        fatal = EIO;
    } else if (place.kind != IoKind::read && strikes(chances_.no_space)) {
        fatal = ENOSPC;
    } else if (place.kind != IoKind::flush && strikes(chances_.no_bytes)) {
        fatal = 0;
    }
    if (fatal < 0) return false;
    ++counts_.fatal;
    fatal_.push_back({.kind = place.kind, .offset_bytes = place.offset_bytes});
    return refuse(place, fatal);
}

bool FaultyBackend::refuse(Place& place, int errno_value) {
    place.result = -errno_value;
    return true;
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

// Whether the attempt ends here.
bool FaultyBackend::lies(Place& place) {
    if (place.kind == IoKind::read) {
        if (strikes(chances_.wrong_read)) {
            place.flipped = random_();
            ++counts_.wrong_reads;
        }
        return false;
    }
    if (strikes(chances_.lost)) {
        ++counts_.lost;
        place.result = static_cast<std::int32_t>(place.bytes);
        return true;
    }
    if (strikes(chances_.misdirected)) {
        misdirect(place);
    } else if (strikes(chances_.wrong_write)) {
        place.copy.emplace(place.bytes);
        std::memcpy(place.copy->data(), place.data, place.bytes);
        place.data = place.copy->data();
        flip_bit(place.data, place.bytes, random_());
        ++counts_.wrong_writes;
    }
    return false;
}

void FaultyBackend::misdirect(Place& place) {
    struct stat status {};
    PENSTOCK_CHECK(::fstat(place.fd, &status) == 0, "fstat");
    const std::uint64_t step = std::max<std::uint64_t>(alignment_bytes_, 512);
    const std::uint64_t room = static_cast<std::uint64_t>(status.st_size) - place.bytes;
    PENSTOCK_CHECK(room >= step, "a file of {} bytes has no other place for {}", status.st_size, place.bytes);
    const std::uint64_t meant = place.offset_bytes;
    while (place.offset_bytes == meant) place.offset_bytes = random_() % (room / step + 1) * step;
    ++counts_.misdirected;
}

Attempt* FaultyBackend::reap(std::chrono::nanoseconds timeout) {
    Attempt* finished = inner_->reap(ready_.empty() ? timeout : std::chrono::nanoseconds(0));
    while (finished != nullptr) {
        Attempt* attempt = std::exchange(finished, finished->next);
        finish(static_cast<Place&>(*attempt));
    }
    return release();
}

// What the inner backend has not begun. What ended here, or has come back, waits for reap() as before.
Attempt* FaultyBackend::abandon() noexcept {
    Attempt* list = nullptr;
    Attempt* given_up = inner_->abandon();
    while (given_up != nullptr) {
        Attempt* attempt = std::exchange(given_up, given_up->next);
        list = give_back(static_cast<Place&>(*attempt), list);
    }
    return list;
}

void FaultyBackend::finish(Place& place) {
    if (place.shortened && place.result >= 0) {
        place.result = static_cast<std::int32_t>(place.reported_bytes);
        if (place.kind == IoKind::read) {
            std::memset(place.outer->data + place.reported_bytes, 0xdb, place.outer->bytes - place.reported_bytes);
        }
    }
    if (place.flipped && place.result > 0) {
        flip_bit(place.data, static_cast<std::uint32_t>(place.result), *place.flipped);
    }
    ready_.push_back(&place);
}

// In random order; at least one when any is ready, so that a delay is never a hang.
Attempt* FaultyBackend::release() {
    if (chances_.delay > 0) std::shuffle(ready_.begin(), ready_.end(), random_);
    const auto first = std::partition(ready_.begin(), ready_.end(), [](Place* place) { return place->delay-- > 0; });
    const auto begin = first == ready_.end() && !ready_.empty() ? first - 1 : first;
    Attempt* list = nullptr;
    for (auto it = begin; it != ready_.end(); ++it) list = give_back(**it, list);
    ready_.erase(begin, ready_.end());
    return list;
}

Attempt* FaultyBackend::give_back(Place& place, Attempt* list) {
    place.outer->result = place.result;
    place.outer->next = list;
    free_.push_back(&place);
    return place.outer;
}

}  // namespace penstock::aio
