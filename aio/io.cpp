#include "aio/io.h"

#include "aio/check.h"
#include "aio/chunk.h"
#include "aio/file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

namespace penstock {

namespace {

constexpr std::chrono::nanoseconds longest_wait = std::chrono::hours(24);  // keeps the deadline representable

// Only the owner writes: a plain load and store, readable elsewhere, without a locked instruction.
void bump(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

std::uint64_t sum(const std::array<std::atomic<std::uint64_t>, urgency_count>& counters) noexcept {
    std::uint64_t total = 0;
    for (const auto& counter : counters) total += counter.load(std::memory_order_relaxed);
    return total;
}

}  // namespace

std::uint64_t IoStatistics::total_read_bytes() const noexcept {
    return sum(read_bytes);
}
std::uint64_t IoStatistics::total_write_bytes() const noexcept {
    return sum(write_bytes);
}

// ---------------------------------------------------------------- the caller's side

Io::Io(std::unique_ptr<Backend> backend, IoLimits limits) : backend_(std::move(backend)), limits_(limits) {
    PENSTOCK_CHECK(backend_ != nullptr && backend_->depth() > 0, "an Io needs a backend");
    PENSTOCK_CHECK(std::has_single_bit(limits_.chunk_bytes) && limits_.chunk_bytes <= max_attempt_bytes,
                   "chunk_bytes {} is not a power of two up to {}", limits_.chunk_bytes, max_attempt_bytes);
    PENSTOCK_CHECK(limits_.tries > 0, "tries {} is not positive", limits_.tries);
    chunks_.resize(backend_->depth());
    for (Chunk& chunk : chunks_) chunk.next_free = std::exchange(free_chunks_, &chunk);
}

Io::~Io() {
    for (auto& directions : queues_) {
        for (Queue& queue : directions) {
            while (Transfer* transfer = queue.pop()) cancel(*transfer);
        }
    }
    while (chunks_in_flight_ > 0) collect(backend_->reap(std::chrono::seconds(1)));
    while (Transfer* transfer = drained_.pop()) cancel(*transfer);
}

void Io::start(Transfer& transfer, const TransferRequest& request) {
    PENSTOCK_CHECK(transfer.idle(), "the transfer is already started");
    check_request(request, limits_.chunk_bytes);
    transfer.request_ = request;
    transfer.error_.reset();
    transfer.issued_bytes_ = 0;
    transfer.transition(Transfer::State::queued);
    queue_of(transfer).push(transfer);
    ++unfinished_;
}

std::size_t Io::wait(std::chrono::nanoseconds timeout) {
    PENSTOCK_CHECK(!delivering_, "done() may not poll or wait");
    std::chrono::nanoseconds left = std::clamp(timeout, std::chrono::nanoseconds(0), longest_wait);
    const auto deadline = std::chrono::steady_clock::now() + left;
    std::size_t delivered = 0;
    for (;;) {
        issue();
        collect(backend_->reap(drained_.head != nullptr ? std::chrono::nanoseconds(0) : left));
        delivered = deliver();
        const bool woken = woken_.exchange(false, std::memory_order_acquire);
        left = deadline - std::chrono::steady_clock::now();
        if (delivered > 0 || woken || left <= std::chrono::nanoseconds(0)) break;
    }
    // What became possible meanwhile goes to the kernel now, because the caller may compute for long before it polls
    // again.
    if (unfinished_ > 0) {
        issue();
        collect(backend_->reap(std::chrono::nanoseconds(0)));
    }
    return delivered;
}

void Io::wake() noexcept {
    woken_.store(true, std::memory_order_release);
    backend_->wake();
}

std::optional<OldestTransfer> Io::oldest() const {
    const Chunk* oldest = nullptr;
    for (const Chunk& chunk : chunks_) {
        if (chunk.transfer == nullptr) continue;
        if (oldest == nullptr || chunk.submitted < oldest->submitted) oldest = &chunk;
    }
    if (oldest == nullptr) return std::nullopt;
    return OldestTransfer{.path = oldest->transfer->request_.file->path(),
                          .kind = oldest->kind,
                          .offset_bytes = oldest->offset_bytes,
                          .age = std::chrono::steady_clock::now() - oldest->submitted};
}

// ---------------------------------------------------------------- from queues to the backend

void Io::issue() noexcept {
    // A direction that is full stays closed to later classes: a small prefetch must not pass a demand read for ever.
    std::array<bool, direction_count> open{true, true, true};
    for (auto& directions : queues_) {
        for (std::size_t index = 0; index < direction_count; ++index) {
            if (open[index]) open[index] = issue_from(directions[index], static_cast<Direction>(index));
        }
    }
}

// Returns whether the queue is empty now.
bool Io::issue_from(Queue& queue, Direction direction) noexcept {
    while (queue.head != nullptr) {
        Transfer& transfer = *queue.head;
        const std::uint64_t left = transfer.request_.bytes - transfer.issued_bytes_;
        const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(limits_.chunk_bytes, left));
        if (!may_issue(direction, bytes)) return false;
        issue_chunk(transfer, bytes);
        if (transfer.wholly_issued()) queue.pop();
    }
    return true;
}

bool Io::may_issue(Direction direction, std::uint64_t bytes) const noexcept {
    const std::uint64_t in_flight = in_flight_bytes_[static_cast<std::size_t>(direction)];
    return free_chunks_ != nullptr && (in_flight == 0 || in_flight + bytes <= limits_.in_flight_bytes);
}

void Io::issue_chunk(Transfer& transfer, std::uint32_t bytes) noexcept {
    const TransferRequest& request = transfer.request_;
    Chunk& chunk = *free_chunks_;
    free_chunks_ = chunk.next_free;
    chunk.kind = request.kind;
    chunk.fd = request.file->fd();
    chunk.data = request.data == nullptr ? nullptr : request.data + transfer.issued_bytes_;
    chunk.offset_bytes = request.offset_bytes + transfer.issued_bytes_;
    chunk.bytes = chunk.issued_bytes = bytes;
    chunk.transfer = &transfer;
    chunk.tries = 0;
    if (transfer.state_ == Transfer::State::queued) transfer.transition(Transfer::State::active);
    transfer.issued_bytes_ += bytes;
    ++transfer.chunks_in_flight_;
    ++chunks_in_flight_;
    in_flight_bytes_[static_cast<std::size_t>(direction_of(chunk.kind))] += bytes;
    submit(chunk);
}

void Io::submit(Chunk& chunk) noexcept {
    bump(statistics_.attempts);
    chunk.submitted = std::chrono::steady_clock::now();
    const bool taken = backend_->submit(chunk);
    PENSTOCK_CHECK(taken, "{} refused one of its {} places", backend_->name(), backend_->depth());
}

// ---------------------------------------------------------------- from the backend to done()

void Io::collect(Attempt* finished) noexcept {
    while (finished != nullptr) {
        Attempt* attempt = std::exchange(finished, finished->next);
        settle(static_cast<Chunk&>(*attempt));
    }
}

void Io::settle(Chunk& chunk) noexcept {
    Transfer& transfer = *chunk.transfer;
    const JudgeRules rules{.alignment_bytes = transfer.request_.file->alignment().offset_bytes, .tries = limits_.tries};
    const Judgement judgement = judge(chunk, rules);
    count_bytes(chunk, judgement.moved_bytes);
    switch (judgement.verdict) {
        case Judgement::Verdict::finished:
            if (chunk.kind == IoKind::flush) bump(statistics_.flushes);
            return retire(chunk);
        case Judgement::Verdict::resume:
            bump(statistics_.resumed);
            break;
        case Judgement::Verdict::retry:
            bump(statistics_.retried);
            break;
        case Judgement::Verdict::failed:
            return fail(chunk, judgement.errno_value);
    }
    // After the first error the transfer is lost, so its other chunks only drain.
    if (transfer.error_) return retire(chunk);
    submit(chunk);
}

void Io::fail(Chunk& chunk, int errno_value) noexcept {
    Transfer& transfer = *chunk.transfer;
    if (!transfer.error_) {
        transfer.error_ = IoError{.kind = chunk.kind,
                                  .path = transfer.request_.file->path(),
                                  .offset_bytes = chunk.offset_bytes,
                                  .bytes = chunk.bytes,
                                  .errno_value = errno_value,
                                  .tries = chunk.tries};
        // Chunks are cut from the head of a queue only, so a transfer that is not wholly cut is that head.
        if (!transfer.wholly_issued()) {
            const Transfer* head = queue_of(transfer).pop();
            PENSTOCK_CHECK(head == &transfer, "a partly issued transfer is not the head of its queue");
        }
    }
    retire(chunk);
}

void Io::retire(Chunk& chunk) noexcept {
    Transfer& transfer = *std::exchange(chunk.transfer, nullptr);
    in_flight_bytes_[static_cast<std::size_t>(direction_of(chunk.kind))] -= chunk.issued_bytes;
    --chunks_in_flight_;
    chunk.next_free = std::exchange(free_chunks_, &chunk);
    --transfer.chunks_in_flight_;
    if (transfer.chunks_in_flight_ > 0 || !(transfer.wholly_issued() || transfer.error_)) return;
    transfer.transition(Transfer::State::drained);
    drained_.push(transfer);
}

std::size_t Io::deliver() noexcept {
    std::size_t delivered = 0;
    delivering_ = true;
    while (Transfer* transfer = drained_.pop()) {
        --unfinished_;
        ++delivered;
        transfer->transition(Transfer::State::idle);
        transfer->done();  // may have destroyed it
    }
    delivering_ = false;
    return delivered;
}

// The Io ends: done() is not called, because what it would touch may be gone. Chunks in flight drain first.
void Io::cancel(Transfer& transfer) noexcept {
    const TransferRequest& request = transfer.request_;
    transfer.error_ = IoError{.kind = request.kind,
                              .path = request.file->path(),
                              .offset_bytes = request.offset_bytes,
                              .bytes = request.bytes,
                              .errno_value = ECANCELED,
                              .tries = 0};
    if (transfer.state_ == Transfer::State::active) return;
    transfer.transition(Transfer::State::idle);
    --unfinished_;
}

void Io::count_bytes(const Chunk& chunk, std::uint32_t bytes) noexcept {
    const auto urgency = static_cast<std::size_t>(chunk.transfer->request_.urgency);
    if (chunk.kind == IoKind::read) bump(statistics_.read_bytes[urgency], bytes);
    if (chunk.kind == IoKind::write) bump(statistics_.write_bytes[urgency], bytes);
}

// ---------------------------------------------------------------- queues

Io::Direction Io::direction_of(IoKind kind) noexcept {
    if (kind == IoKind::read) return Direction::read;
    return kind == IoKind::write ? Direction::write : Direction::flush;
}

Io::Queue& Io::queue_of(const Transfer& transfer) noexcept {
    const auto urgency = static_cast<std::size_t>(transfer.request_.urgency);
    return queues_[urgency][static_cast<std::size_t>(direction_of(transfer.request_.kind))];
}

void Io::Queue::push(Transfer& transfer) noexcept {
    transfer.next_ = nullptr;
    (tail == nullptr ? head : tail->next_) = &transfer;
    tail = &transfer;
}

Transfer* Io::Queue::pop() noexcept {
    Transfer* transfer = head;
    if (transfer == nullptr) return nullptr;
    head = std::exchange(transfer->next_, nullptr);
    if (head == nullptr) tail = nullptr;
    return transfer;
}

}  // namespace penstock
