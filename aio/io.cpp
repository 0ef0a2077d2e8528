#include "aio/io.h"

#include "aio/chunk.h"
#include "aio/device_queue.h"
#include "aio/file.h"
#include "aio/words/check.h"
#include "aio/words/io_error.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

namespace penstock::aio {
namespace {

constexpr std::chrono::nanoseconds longest_wait = std::chrono::hours(24);  // keeps points in time representable
constexpr std::chrono::nanoseconds first_pause = std::chrono::microseconds(100);
constexpr std::chrono::nanoseconds longest_pause = std::chrono::milliseconds(10);

// After the first attempt 100 us, then twice as long each time, up to 10 ms.
std::chrono::nanoseconds pause_after(int tries) noexcept {
    return std::min(first_pause * (1 << std::min(tries - 1, 16)), longest_pause);
}

// Whether a read came back short because its file ends there: to ask for the rest would be to ask for nothing.
bool ends_short_of(const Chunk& read) noexcept {
    if (read.kind != IoKind::read || read.result < 0 || static_cast<std::uint32_t>(read.result) >= read.bytes)
        return false;
    struct stat status {};
    if (::fstat(read.fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
    return static_cast<std::uint64_t>(status.st_size) <= read.offset_bytes + static_cast<std::uint64_t>(read.result);
}

// Few places must not all be kept for demand reads.
InFlightLimits fitted(InFlightLimits limits, std::size_t depth) noexcept {
    limits.demand_places = static_cast<std::uint32_t>(std::min<std::size_t>(limits.demand_places, depth / 4));
    return limits;
}

}  // namespace

// ---------------------------------------------------------------- the caller's side

Io::Io(std::unique_ptr<Backend> backend, IoLimits limits) : backend_(std::move(backend)), limits_(limits) {
    PENSTOCK_CHECK(backend_ != nullptr && backend_->depth() > 0, "an Io needs a backend");
    PENSTOCK_CHECK(std::has_single_bit(limits_.chunk_bytes) && limits_.chunk_bytes <= max_attempt_bytes,
                   "chunk_bytes {} is not a power of two up to {}", limits_.chunk_bytes, max_attempt_bytes);
    PENSTOCK_CHECK(limits_.tries > 0, "tries {} is not positive", limits_.tries);
    PENSTOCK_CHECK(limits_.deadline > std::chrono::nanoseconds(0), "deadline {} ns", limits_.deadline.count());
    check_limits(limits_.in_flight, limits_.chunk_bytes);
    limits_.in_flight = fitted(limits_.in_flight, backend_->depth());
    limits_.deadline = std::min(limits_.deadline, longest_wait);
    queues_ = std::make_unique<DeviceQueues>(limits_.in_flight, max_io_devices);
    chunk_memory_ = std::make_unique<Chunk[]>(backend_->depth());
    chunks_ = {chunk_memory_.get(), backend_->depth()};
    for (Chunk& chunk : chunks_) chunk.next_idle = std::exchange(free_chunks_, &chunk);
    free_count_ = chunks_.size();
}

void Io::start(Transfer& transfer, const TransferRequest& request) {
    PENSTOCK_CHECK(transfer.idle(), "the transfer is already started");
    check_request(request);
    transfer.request_ = request;
    if (!request.urgency && request.kind != IoKind::flush)
        transfer.request_.urgency = request.kind == IoKind::read ? Urgency::demand : Urgency::write_back;
    transfer.error_.reset();
    transfer.issued_bytes_ = 0;
    transfer.started_ = backend_->now();
    transfer.transition(Transfer::State::queued);
    queues_->of(request.file->device()).push(transfer);
    ++unfinished_;
}

void Io::post(Transfer& transfer) noexcept {
    PENSTOCK_CHECK(transfer.idle(), "the transfer is already started");
    transfer.request_ = {};
    transfer.error_.reset();
    transfer.transition(Transfer::State::drained);
    drained_.push(transfer);
    ++unfinished_;
}

void Io::lend(Transfer& transfer) noexcept {
    PENSTOCK_CHECK(transfer.idle(), "the transfer is already started");
    transfer.request_ = {};
    transfer.error_.reset();
    transfer.transition(Transfer::State::lent);
    ++unfinished_;
    ++lent_;
}

// Whoever finds the list empty wakes the owner, who takes all of it.
void Io::give_back(Transfer& transfer) noexcept {
    Transfer* before = given_back_.load(std::memory_order_relaxed);
    do {
        transfer.next_ = before;
    } while (!given_back_.compare_exchange_weak(before, &transfer, std::memory_order_release));
    if (before == nullptr) wake();
}

void Io::promote(Transfer& transfer, Urgency urgency) noexcept {
    TransferRequest& request = transfer.request_;
    if (!transfer.waits() || request.kind == IoKind::flush || urgency >= *request.urgency) return;
    PENSTOCK_CHECK(has_urgency(request.kind, urgency), "a {} has no class {}", to_string(request.kind),
                   static_cast<int>(urgency));
    DeviceQueue& queue = queues_->of(request.file->device());
    queue.remove(transfer);
    request.urgency = urgency;
    queue.push(transfer);
}

std::size_t Io::wait(std::chrono::nanoseconds timeout) {
    PENSTOCK_CHECK(!delivering_, "done() may not poll or wait");
    now_ = backend_->now();
    const Time until = now_ + std::clamp(timeout, std::chrono::nanoseconds(0), longest_wait);
    std::size_t delivered = 0;
    for (;;) {
        issue();
        // A reap that did not block may have taken the backend's wake, but woken_ stays until here.
        const bool blocks = drained_.empty() && !woken_.load(std::memory_order_acquire);
        reap(blocks ? next_timer(until) - now_ : std::chrono::nanoseconds(0));
        // done() may compute for long (a hash): the device works meanwhile.
        if (!drained_.empty()) hand_over();
        delivered = deliver();
        const bool woken = woken_.exchange(false, std::memory_order_acquire);
        if (delivered > 0 || woken || now_ >= until) break;
    }
    // What became possible meanwhile goes to the kernel now, because the caller may compute for long before it polls
    // again.
    if (unfinished_ > 0) hand_over();
    return delivered;
}

void Io::hand_over() noexcept {
    now_ = backend_->now();
    do {  // as often as something came back to be tried again; tries are bounded
        resubmitted_ = false;
        issue();
        reap(std::chrono::nanoseconds(0));
    } while (resubmitted_);
}

void Io::wake() noexcept {
    woken_.store(true, std::memory_order_release);
    backend_->wake();
}

std::string Io::register_memory(std::span<const std::span<std::byte>> ranges) {
    PENSTOCK_CHECK(idle(), "memory is registered while {} transfers are under way", unfinished_);
    return backend_->register_memory(ranges);
}

std::string Io::register_files(std::span<const File* const> files) {
    PENSTOCK_CHECK(idle(), "files are registered while {} transfers are under way", unfinished_);
    std::vector<RegisteredFile> registered;
    for (const File* file : files) registered.push_back({.fd = file->fd(), .id = file->id()});
    return backend_->register_files(registered);
}

// ---------------------------------------------------------------- from the queues to the backend

// With fewer places than devices none can be kept for each, so the one that got the last place is offered the next one
// last.
void Io::issue() noexcept {
    submit_rested();
    const std::span<DeviceQueue> queues = queues_->all();
    const std::size_t first = first_queue_;
    for (std::size_t i = 0; i < queues.size(); ++i) {
        const std::size_t index = (first + i) % queues.size();
        const std::size_t before = free_count_;
        issue_queue(queues[index]);
        if (free_count_ < before) first_queue_ = index + 1;
    }
}

void Io::issue_queue(DeviceQueue& queue) noexcept {
    while (!queue.flushes.empty() && free_places(queue) > 0) issue_chunk(queue, *queue.flushes.head());
    bool throttled = false;
    for (std::size_t i = 0; i < urgency_count; ++i) {
        for (const IoKind kind : {IoKind::read, IoKind::write}) {
            if (issue_class(queue, kind, static_cast<Urgency>(i)) == Admission::throttled) throttled = true;
        }
    }
    if (queue.update_throttled(throttled, now_)) bump(statistics_.throttled);
}

// Returns why it stopped: yes when the queue is empty now.
Admission Io::issue_class(DeviceQueue& queue, IoKind kind, Urgency urgency) noexcept {
    const TransferQueue& waiting =
        (kind == IoKind::read ? queue.reads : queue.writes)[static_cast<std::size_t>(urgency)];
    while (Transfer* transfer = waiting.head()) {
        const std::uint64_t left = transfer->request_.bytes - transfer->issued_bytes_;
        queue.load.free_places = free_places(queue);
        queue.load.demand_recent = queue.demand_recent(now_);
        const Admission answer =
            admit(queue.limits, queue.load, kind, urgency, next_chunk_bytes(transfer->request_, left));
        if (answer != Admission::yes) return answer;
        issue_chunk(queue, *transfer);
    }
    return Admission::yes;
}

// Limits are measured or guessed, and may be of another device: it is served all the same.
std::uint32_t Io::next_chunk_bytes(const TransferRequest& request, std::uint64_t left) const noexcept {
    if (left == 0) return 0;  // a flush
    const std::uint32_t most = std::max(limits_.chunk_bytes, request.file->alignment().offset_bytes);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(most, left));
}

std::uint32_t Io::free_places(const DeviceQueue& queue) const noexcept {
    return queues_->free_places(queue, {.free = free_count_, .all = chunks_.size()});
}

void Io::issue_chunk(DeviceQueue& queue, Transfer& transfer) noexcept {
    const TransferRequest& request = transfer.request_;
    Chunk& chunk = *std::exchange(free_chunks_, free_chunks_->next_idle);
    --free_count_;
    chunk.kind = request.kind;
    chunk.fd = request.file->fd();
    chunk.file_id = request.file->id();
    chunk.device = request.file->device();
    chunk.data = request.data == nullptr ? nullptr : request.data + transfer.issued_bytes_;
    chunk.offset_bytes = request.offset_bytes + transfer.issued_bytes_;
    chunk.bytes = chunk.issued_bytes = next_chunk_bytes(request, request.bytes - transfer.issued_bytes_);
    chunk.urgency = request.urgency.value_or(Urgency::demand);
    chunk.tries = 0;
    chunk.lasting =
        chunk.kind == IoKind::flush ||
        (chunk.kind == IoKind::write && (!request.file->direct() || request.file->sync() == Sync::each_write));
    chunk.transfer = &transfer;
    chunk.queue = &queue;
    queues_->add(queue, chunk);
    if (transfer.state_ == Transfer::State::queued) {
        transfer.transition(Transfer::State::active);
        transfer.issued_ = now_;
    }
    transfer.issued_bytes_ += chunk.bytes;
    ++transfer.chunks_in_flight_;
    if (transfer.wholly_issued()) queue.remove(transfer);
    submit(chunk);
}

void Io::submit(Chunk& chunk) noexcept {
    if (LaneStatistics* lane = statistics_.lane_of(chunk.kind, chunk.urgency)) bump(lane->attempts);
    chunk.state = Chunk::State::handed_over;
    chunk.submitted = chunk.alive = now_;
    chunk.sectors_written.reset();
    if (chunk.lasting) look_after_ = std::min(look_after_, now_ + limits_.deadline / looks_per_deadline);
    ++handed_over_;
    const bool taken = backend_->submit(chunk);
    PENSTOCK_CHECK(taken, "{} refused one of its {} places", backend_->name(), backend_->depth());
}

// ---------------------------------------------------------------- pauses

void Io::rest(Chunk& chunk) noexcept {
    chunk.state = Chunk::State::resting;
    chunk.due = now_ + pause_after(chunk.tries);
    chunk.next_idle = std::exchange(resting_, &chunk);
}

void Io::submit_rested() noexcept {
    Chunk* all = std::exchange(resting_, nullptr);
    while (all != nullptr) {
        Chunk& chunk = *std::exchange(all, all->next_idle);
        if (chunk.transfer->error_) {
            retire(chunk);
        } else if (chunk.due > now_) {
            chunk.next_idle = std::exchange(resting_, &chunk);
        } else {
            submit(chunk);
        }
    }
}

// The first point in time at which something can go that no completion announces.
Io::Time Io::next_timer(Time until) const noexcept {
    for (const Chunk* chunk = resting_; chunk != nullptr; chunk = chunk->next_idle) until = std::min(until, chunk->due);
    return queues_->next_timer(until);
}

// ---------------------------------------------------------------- from the backend to done()

void Io::reap(std::chrono::nanoseconds timeout) noexcept {
    Attempt* finished = backend_->reap(timeout);
    now_ = backend_->now();
    settle_all(finished);
    take_given_back();
}

// In the order in which they came back.
void Io::take_given_back() noexcept {
    Transfer* last = given_back_.load(std::memory_order_relaxed);
    if (last == nullptr) return;
    last = given_back_.exchange(nullptr, std::memory_order_acquire);
    Transfer* first = nullptr;
    while (last != nullptr) {
        Transfer* const before = std::exchange(last->next_, first);
        first = std::exchange(last, before);
    }
    while (first != nullptr) {
        Transfer& transfer = *std::exchange(first, first->next_);
        PENSTOCK_CHECK(transfer.state_ == Transfer::State::lent, "a transfer is given back that was not lent");
        transfer.transition(Transfer::State::drained);
        drained_.push(transfer);
        --lent_;
    }
}

void Io::settle_all(Attempt* finished) noexcept {
    while (finished != nullptr) {
        Attempt* attempt = std::exchange(finished, finished->next);
        settle(static_cast<Chunk&>(*attempt));
    }
}

void Io::settle(Chunk& chunk) noexcept {
    Transfer& transfer = *chunk.transfer;
    LaneStatistics* lane = statistics_.lane_of(chunk.kind, chunk.urgency);
    --handed_over_;
    if (lane != nullptr) lane->device.add(now_ - chunk.submitted);
    const bool again = chunk.result == -EAGAIN;
    const Alignment alignment = transfer.request_.file->alignment();  // a resumed attempt obeys both
    const JudgeRules rules{.alignment_bytes = std::max(alignment.memory_bytes, alignment.offset_bytes),
                           .tries = limits_.tries,
                           .file_ends = ends_short_of(chunk)};
    const Judgement judgement = judge(chunk, rules);
    if (lane != nullptr) bump(lane->bytes, judgement.moved_bytes);
    switch (judgement.verdict) {
        case Judgement::Verdict::finished:
            return retire(chunk);
        case Judgement::Verdict::resume:
            if (lane != nullptr) bump(lane->resumed);
            break;
        case Judgement::Verdict::retry:
            if (lane != nullptr) bump(lane->retried);
            break;
        case Judgement::Verdict::failed:
            return fail(chunk, judgement.errno_value);
    }
    // After the first error the transfer has failed, so its other chunks only drain.
    if (transfer.error_) return retire(chunk);
    if (again) return rest(chunk);
    resubmitted_ = true;
    submit(chunk);
}

void Io::fail(Chunk& chunk, int errno_value) noexcept {
    Transfer& transfer = *chunk.transfer;
    if (transfer.waits()) chunk.queue->remove(transfer);
    if (!transfer.error_) {
        transfer.error_ = IoError{.kind = chunk.kind,
                                  .path = transfer.request_.file->shared_path(),
                                  .offset_bytes = chunk.offset_bytes,
                                  .bytes = chunk.bytes,
                                  .errno_value = errno_value,
                                  .tries = chunk.tries};
    }
    retire(chunk);
}

void Io::retire(Chunk& chunk) noexcept {
    Transfer& transfer = *std::exchange(chunk.transfer, nullptr);
    DeviceQueue& queue = *std::exchange(chunk.queue, nullptr);
    chunk.state = Chunk::State::free;
    chunk.next_idle = std::exchange(free_chunks_, &chunk);
    ++free_count_;
    queues_->subtract(queue, chunk, now_);
    --transfer.chunks_in_flight_;
    if (transfer.chunks_in_flight_ == 0 && (transfer.wholly_issued() || transfer.error_)) drain(transfer);
}

void Io::drain(Transfer& transfer) noexcept {
    transfer.transition(Transfer::State::drained);
    drained_.push(transfer);
    statistics_.count(
        transfer.request_,
        {.whole = !transfer.error_, .latency = now_ - transfer.started_, .wait = transfer.issued_ - transfer.started_});
}

std::size_t Io::deliver() noexcept {
    std::size_t delivered = 0;
    TransferQueue due = std::exchange(drained_, {});
    delivering_ = true;
    while (Transfer* transfer = due.pop()) {
        --unfinished_;
        ++delivered;
        transfer->transition(Transfer::State::idle);
        transfer->done();  // may have destroyed it
    }
    delivering_ = false;
    if (delivered > 0) now_ = backend_->now();
    return delivered;
}

}  // namespace penstock::aio
