// What does not come back: who is named, how long is waited, and what the end of an Io does with it.
#include "aio/chunk.h"
#include "aio/device_queue.h"
#include "aio/file.h"
#include "aio/io.h"
#include "aio/words/check.h"
#include "aio/words/io_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace penstock::aio {

namespace {

constexpr std::chrono::nanoseconds tick(1);

std::string seconds_text(std::chrono::nanoseconds time) {
    const double seconds = std::chrono::duration<double>(time).count();
    return seconds < 10 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

}  // namespace

std::string OldestTransfer::message() const {
    if (kind == IoKind::flush) return fmt::format("flush of {} has not come back for {}", path, seconds_text(age));
    return fmt::format("{} of {} at offset {} has not come back for {}", to_string(kind), path, offset_bytes,
                       seconds_text(age));
}

// ---------------------------------------------------------------- while it runs

const Chunk* Io::oldest_chunk() const noexcept {
    const Chunk* oldest = nullptr;
    for (const Chunk& chunk : chunks_) {
        if (chunk.state != Chunk::State::handed_over) continue;
        if (oldest == nullptr || chunk.submitted < oldest->submitted) oldest = &chunk;
    }
    return oldest;
}

OldestTransfer Io::describe(const Chunk& chunk) const {
    return {.path = chunk.transfer->request_.file->path(),
            .kind = chunk.kind,
            .offset_bytes = chunk.offset_bytes,
            .age = backend_->now() - chunk.submitted};
}

std::optional<OldestTransfer> Io::oldest() const {
    const Chunk* chunk = oldest_chunk();
    return chunk == nullptr ? std::nullopt : std::optional(describe(*chunk));
}

// A lasting attempt is alive while its device writes. The first look finds no earlier count to compare with and takes
// it for alive, so a device that does nothing is named after one and a quarter of the deadline, or two where the owner
// slept meanwhile.
void Io::listen() noexcept {
    for (Chunk& chunk : chunks_) {
        if (chunk.state != Chunk::State::handed_over || !chunk.lasting) continue;
        const std::optional<std::uint64_t> written = backend_->sectors_written(chunk.device);
        if (!written || written == chunk.sectors_written) continue;
        chunk.sectors_written = written;
        chunk.alive = backend_->now();
    }
}

// The one that has been without a sign of life for longest, and when to look next. What is handed over later is
// younger, and says by itself when it wants to be looked at earlier.
const Chunk* Io::look() noexcept {
    listen();
    const Time now = backend_->now();
    const Chunk* oldest = nullptr;
    look_after_ = now + limits_.deadline;
    for (const Chunk& chunk : chunks_) {
        if (chunk.state != Chunk::State::handed_over) continue;
        if (oldest == nullptr || chunk.alive < oldest->alive) oldest = &chunk;
        look_after_ = std::min(look_after_, chunk.alive + limits_.deadline);
        if (chunk.sectors_written) look_after_ = std::min(look_after_, now + limits_.deadline / looks_per_deadline);
    }
    return oldest;
}

// Looks at what is in flight only when something may be too old: once per deadline while all is well.
std::optional<OldestTransfer> Io::advance(std::chrono::nanoseconds timeout) {
    if (timeout > std::chrono::nanoseconds(0)) {
        const Time begin = backend_->now();
        if (begin > look_after_) look();
        timeout = std::min(timeout, look_after_ + tick - begin);
    }
    wait(timeout);
    const Time seen = now_;
    if (seen <= look_after_) return std::nullopt;
    hand_over();  // what came back until that moment is back
    const Chunk* oldest = look();
    const bool late = oldest != nullptr && seen > oldest->alive + limits_.deadline;
    return late ? std::optional(describe(*oldest)) : std::nullopt;
}

template <typename Ended>
std::optional<OldestTransfer> Io::finish_until(const Ended& ended) {
    while (!ended()) {
        auto stuck = advance(limits_.deadline);
        if (stuck && !ended()) return stuck;
    }
    return std::nullopt;
}

std::optional<OldestTransfer> Io::finish(const Transfer& transfer) {
    return finish_until([&transfer] { return transfer.idle(); });
}

std::optional<OldestTransfer> Io::finish_all() {
    return finish_until([this] { return idle(); });
}

// ---------------------------------------------------------------- the end

Io::~Io() {
    now_ = backend_->now();
    cancel_all();
    await_kernel();
    take_given_back();
    PENSTOCK_CHECK(lent_ == 0, "the Io ends while {} transfers are lent", lent_);
    if (handed_over_ > 0) settle_all(backend_->abandon());
    while (Transfer* transfer = drained_.pop()) {
        transfer->fail(ECANCELED);  // also one that ended well: nobody was told
        transfer->transition(Transfer::State::idle);
    }
    if (handed_over_ > 0) leave_to_kernel();
}

// Nothing new is issued, and what comes back short is not resumed, because the transfer has an error.
void Io::cancel_all() noexcept {
    const auto cancel = [this](TransferQueue& queue) {
        while (Transfer* transfer = queue.pop()) {
            transfer->fail(ECANCELED);
            if (transfer->chunks_in_flight_ == 0) drain(*transfer);
        }
    };
    for (DeviceQueue& device : queues_->all()) {
        cancel(device.flushes);
        for (TransferQueue& queue : device.reads) cancel(queue);
        for (TransferQueue& queue : device.writes) cancel(queue);
    }
    for (Chunk& chunk : chunks_) {
        if (chunk.transfer != nullptr && !chunk.transfer->error_) chunk.transfer->fail(ECANCELED);
    }
    submit_rested();  // retires them
}

// Until all of it is back or has been with the kernel longer than the deadline.
void Io::await_kernel() noexcept {
    reap(std::chrono::nanoseconds(0));  // what came back while the owner was away
    while (handed_over_ > 0) {
        Time youngest = Time::min();
        for (const Chunk& chunk : chunks_) {
            if (chunk.state == Chunk::State::handed_over) youngest = std::max(youngest, chunk.submitted);
        }
        const Time until = youngest + limits_.deadline + tick;
        if (now_ >= until) return;
        reap(until - now_);
    }
}

// The one place where memory is left to nobody: a stuck device may still write what it was given, and the kernel may
// still write results into the backend. Both live as long as the process, whose end the kernel completes.
void Io::leave_to_kernel() noexcept {
    for (Chunk& chunk : chunks_) {
        if (chunk.state != Chunk::State::handed_over) continue;
        Transfer& transfer = *chunk.transfer;
        if (transfer.orphaned()) continue;
        transfer.fail(ETIMEDOUT);
        transfer.error_->offset_bytes = chunk.offset_bytes;
        transfer.error_->bytes = chunk.bytes;
        transfer.error_->tries = chunk.tries + 1;
        transfer.transition(Transfer::State::orphaned);
    }
    static_cast<void>(chunk_memory_.release());
    static_cast<void>(backend_.release());
}

}  // namespace penstock::aio
