#include "tests/swap/kills/kill_backend.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace penstock::testing {
KillBackend::KillBackend(std::unique_ptr<aio::Backend> inner, const KillPoint& point, KillListener& listener)
    : ForwardingBackend(std::move(inner)), point_(point), listener_(listener), random_(point.seed) {}

void KillBackend::hear(std::span<const Told> messages) {
    for (const Told& message : messages) {
        if (message.kind == Told::Kind::committing) committing_ = true;
        if (message.kind == Told::Kind::committed) committing_ = false;
    }
    listener_.hear(messages);
}

bool KillBackend::submit(aio::Attempt& attempt) {
    using How = KillPoint::How;
    const bool strikes = is_counted(attempt) && ++count_ == point_.nth;
    if (strikes && point_.how == How::before) {
        // What was handed over before it is with the kernel, not in a batch that waits for the next reap().
        static_cast<void>(inner_->reap(std::chrono::nanoseconds(0)));
        strike();
    }
    in_flight_.push_back(&attempt);
    if (strikes && point_.how == How::torn) {
        for (const aio::Attempt* each : in_flight_) tear(*each);
        strike();
    }
    const bool taken = inner_->submit(attempt);
    PENSTOCK_CHECK(taken, "the Io hands over more than the backend's depth");
    if (!strikes) return true;
    if (point_.how == How::handed_over) {
        static_cast<void>(inner_->reap(std::chrono::nanoseconds(0)));
        strike();
    }
    last_ = &attempt;
    return true;
}

aio::Attempt* KillBackend::reap(std::chrono::nanoseconds timeout) {
    aio::Attempt* const finished = inner_->reap(timeout);
    for (const aio::Attempt* attempt = finished; attempt != nullptr; attempt = attempt->next) {
        if (attempt == last_) strike();
        std::erase(in_flight_, attempt);
    }
    return finished;
}

bool KillBackend::is_counted(const aio::Attempt& attempt) const {
    return point_.of == KillPoint::Of::all || (committing_ && attempt.kind != aio::IoKind::read);
}

// Some sectors reach the file, the others do not: in any order, as a kernel that was told to write them might do it.
// Through the same descriptor: a direct write collides with dirty pages, and the kernel answers the next flush with
// EIO.
void KillBackend::tear(const aio::Attempt& attempt) {
    if (attempt.kind != aio::IoKind::write) return;
    std::size_t sector_bytes = 512;
    for (std::size_t at = 0; at < attempt.bytes; at += sector_bytes) {
        if (random_() % 2 == 0) continue;
        const auto offset = static_cast<off_t>(attempt.offset_bytes + at);
        ssize_t done = ::pwrite(attempt.fd, attempt.data + at, sector_bytes, offset);
        if (done < 0 && errno == EINVAL && sector_bytes == 512) {  // of a direct file: this device has longer sectors
            sector_bytes = 4096;
            at = 0;
            done = ::pwrite(attempt.fd, attempt.data, sector_bytes, static_cast<off_t>(attempt.offset_bytes));
        }
        PENSTOCK_CHECK(done == static_cast<ssize_t>(sector_bytes), "pwrite gives {}", done);
    }
}

void KillBackend::strike() {
    listener_.hear({{{Told::Kind::struck, static_cast<std::uint64_t>(point_.how), 0}}});
    ::kill(::getpid(), SIGKILL);
    while (true) ::pause();
}

}  // namespace penstock::testing
