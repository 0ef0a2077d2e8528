#include "swap/capi/c_store.h"

#include "aio/words/check.h"
#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <utility>

namespace penstock::store {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t client_entry_bytes = 8;               // beside key and value (swap/FORMAT.md)
constexpr std::int64_t longest_wait_ms = 24LL * 3600 * 1000;  // keeps points in time representable

aio::Urgency urgency_of(penstock_kind kind, int urgency) {
    const bool reads = kind == PENSTOCK_READ;
    switch (urgency) {
        case PENSTOCK_URGENCY_DEFAULT:
            return reads ? aio::Urgency::demand : aio::Urgency::write_back;
        case PENSTOCK_DEMAND:
            return aio::Urgency::demand;
        case PENSTOCK_SCRUB:
            return aio::Urgency::scrub;
        case PENSTOCK_PREFETCH:
            require(reads, "a write has no urgency PENSTOCK_PREFETCH");
            return aio::Urgency::prefetch;
        case PENSTOCK_WRITE_BACK:
            require(!reads, "a read has no urgency PENSTOCK_WRITE_BACK");
            return aio::Urgency::write_back;
    }
    throw Refusal(PENSTOCK_USAGE, fmt::format("there is no urgency {}", urgency));
}

std::uint64_t bytes_of(const ClientState& client) {
    std::uint64_t bytes = 0;
    for (const auto& [key, value] : client) bytes += client_entry_bytes + key.size() + value.size();
    return bytes;
}

bool lies_in(std::span<const std::byte> part, std::span<const std::byte> whole) {
    const std::less_equal<> not_after;
    return not_after(whole.data(), part.data()) && part.size() <= whole.size() &&
           not_after(part.data(), whole.data() + (whole.size() - part.size()));
}

}  // namespace

CStore::CStore(OpenStore open)
    : open_(std::move(open)),
      ready_(open_.ready_fd()),
      client_(open_.store().client()),
      busy_(open_.store().layout().tile_count(), false) {}

const char* CStore::note(std::size_t index) const noexcept {
    if (!open_.backend_note().empty()) {
        if (index == 0) return open_.backend_note().c_str();
        --index;
    }
    const std::vector<std::string>& notes = open_.store().notes();
    return index < notes.size() ? notes[index].c_str() : nullptr;
}

void CStore::set_client(const std::string& key, const void* value, std::size_t bytes) {
    if (value == nullptr) {
        client_.erase(key);
        return;
    }
    if (bytes <= max_client_bytes) {
        ClientState changed = client_;
        changed.insert_or_assign(key, std::string(static_cast<const char*>(value), bytes));
        if (bytes_of(changed) <= max_client_bytes) {
            client_ = std::move(changed);
            return;
        }
    }
    throw Refusal(PENSTOCK_DOES_NOT_FIT,
                  fmt::format("with {} bytes for key '{}' the client's values would take more than the {} bytes that a "
                              "generation has room for; keep large values in an object",
                              bytes, key, max_client_bytes));
}

// ---------------------------------------------------------------- what is refused

void CStore::require_alive() const {
    if (lost()) throw Refusal(PENSTOCK_STORAGE, loss_);
}

void CStore::require_closable() const {
    if (lost() || running_.empty()) return;
    throw Refusal(PENSTOCK_BUSY, fmt::format("the store has {} operations in flight: take their results first "
                                             "(penstock_next until it returns PENSTOCK_IDLE)",
                                             running_.size()));
}

void CStore::require_free(const TileRange& range) const {
    const Layout& layout = open_.store().layout();
    const std::uint32_t first = layout.tile_index(range.tile(0));
    for (std::uint32_t i = 0; i < range.count; ++i) {
        if (!busy_[first + i]) continue;
        throw Refusal(PENSTOCK_BUSY, fmt::format("{} has an operation in flight: take its result first",
                                                 describe(layout, range.tile(i))));
    }
}

void CStore::require_written(penstock_range given, penstock_status status) const {
    const Layout& layout = open_.store().layout();
    const TileRange range = tiles_of(layout, given);
    for (std::uint32_t i = 0; i < range.count; ++i) {
        if (open_.store().written(range.tile(i))) continue;
        throw Refusal(
            status, fmt::format("{} was never written, so there is nothing to read", describe(layout, range.tile(i))));
    }
}

std::span<std::byte> CStore::checked(const penstock_memory& memory, std::uint64_t needed_bytes) const {
    require(memory.data != nullptr, "memory.data is NULL");
    require(memory.bytes >= needed_bytes, "memory of {} bytes is given, but {} are needed (penstock_range_bytes)",
            memory.bytes, needed_bytes);
    const std::uint64_t granule = open_.store().granule_bytes();
    require(reinterpret_cast<std::uintptr_t>(memory.data) % granule == 0,
            "memory at {} is not aligned to {} bytes (penstock_alignment)", memory.data, granule);
    const std::span<std::byte> used(static_cast<std::byte*>(memory.data), needed_bytes);
    require(memory.lease == nullptr || lies_in(used, memory.lease->lease.span()),
            "memory of {} bytes at {} is not within its lease", needed_bytes, memory.data);
    return used;
}

// ---------------------------------------------------------------- operations

void CStore::start_range(penstock_kind kind, penstock_range given, const penstock_memory& memory, int urgency,
                         void* user) {
    require_alive();
    TensorStore& store = open_.store();
    const TileRange range = tiles_of(store.layout(), given);
    const std::span<std::byte> used = checked(memory, memory_bytes(store.layout(), range));
    const aio::Urgency wanted = urgency_of(kind, urgency);
    if (kind == PENSTOCK_WRITE && store.poisoned())
        throw Refusal(PENSTOCK_POISONED,
                      "an earlier commit failed: nothing is written or committed any more; open the store again");
    require_free(range);
    if (kind == PENSTOCK_READ) require_written(given, PENSTOCK_USAGE);
    if (kind == PENSTOCK_WRITE && committing_)
        throw Refusal(PENSTOCK_BUSY, "a commit is in flight, and writes wait for its result");
    pool::Hold hold = memory.lease == nullptr ? pool::Hold() : memory.lease->lease.hold();
    auto request = std::make_unique<RangeRequest>(kind, user, store, range, used, wanted, std::move(hold), listener());
    RangeRequest& begun = *request;
    begun.place = running_.insert(running_.end(), std::move(request));
    mark(range, true);
    if (kind == PENSTOCK_WRITE) ++writes_;
    begun.begin();
    advance_begun();
}

void CStore::start_commit(void* user) {
    require_alive();
    if (open_.store().kind() == StoreKind::scratch)
        throw Refusal(PENSTOCK_USAGE, "the store is scratch, which commits nothing");
    if (committing_) throw Refusal(PENSTOCK_BUSY, "a commit is in flight: take its result first");
    if (writes_ > 0)
        throw Refusal(PENSTOCK_BUSY, fmt::format("{} writes are in flight: take their results first", writes_));
    auto request = std::make_unique<CommitRequest>(user, listener());
    CommitRequest& begun = *request;
    RequestList one;
    begun.place = one.insert(one.end(), std::move(request));
    begun.begin(open_.store(), client_);
    running_.splice(running_.end(), one);
    committing_ = true;
    advance_begun();
}

void CStore::mark(const TileRange& range, bool busy) noexcept {
    if (range.count == 0) return;
    const auto first = busy_.begin() + open_.store().layout().tile_index(range.tile(0));
    std::fill(first, first + range.count, busy);
}

void CStore::request_finished(Request& request) noexcept {
    mark(request.range, false);
    if (request.kind == PENSTOCK_WRITE) --writes_;
    if (request.kind == PENSTOCK_COMMIT) committing_ = false;
    finished_.splice(finished_.end(), running_, request.place);
}

// ---------------------------------------------------------------- results

penstock_status CStore::next(std::int64_t timeout_ms, penstock_result& result) {
    const Clock::time_point begin = Clock::now();
    const auto timeout =
        std::chrono::milliseconds(timeout_ms < 0 ? longest_wait_ms : std::min(timeout_ms, longest_wait_ms));
    advance(std::chrono::nanoseconds(0));
    penstock_status status = PENSTOCK_OK;
    while (finished_.empty() && status == PENSTOCK_OK) {
        const std::chrono::nanoseconds left = begin + timeout - Clock::now();
        if (running_.empty()) {
            status = PENSTOCK_IDLE;
        } else if (timeout_ms >= 0 && left <= std::chrono::nanoseconds(0)) {
            status = PENSTOCK_TIMEOUT;
        } else {
            advance(timeout_ms < 0 ? std::chrono::milliseconds(longest_wait_ms) : left);
        }
    }
    if (status == PENSTOCK_OK) take(result);
    update_ready();
    return status;
}

void CStore::take(penstock_result& result) noexcept {
    taken_ = std::move(finished_.front());
    finished_.pop_front();
    const penstock_result taken = {.struct_bytes = sizeof taken,
                                   .kind = taken_->kind,
                                   .status = taken_->status,
                                   .user = taken_->user,
                                   .message = taken_->message.c_str(),
                                   .memory_lost = taken_->memory_lost ? 1 : 0};
    put(taken, result);
}

void CStore::advance(std::chrono::nanoseconds timeout) {
    if (lost()) return give_up_running();
    if (const auto stuck = open_.io().advance(timeout)) lose(*stuck);
}

// What has begun has a result, whatever becomes of this: what was not done now is done by the next call.
void CStore::advance_begun() noexcept {
    try {
        advance(std::chrono::nanoseconds(0));
    } catch (const std::exception&) {
    }
    update_ready();
}

// Nothing that is in flight comes back any more, and what stands in for it tells so. The requests stay where they are,
// owned by nobody: the device may still write into their memory.
void CStore::lose(const aio::OldestTransfer& stuck) {
    loss_ = stuck.message() +
            "; the store serves nothing any more. Check the device (dmesg), end the program and start it again.";
    open_.store().abandon();
    ready_.drop_backend();
    give_up_running();
}

// One after the other, so that what memory runs out for is done by the next call.
void CStore::give_up_running() {
    while (!running_.empty()) {
        const Request& request = *running_.front();
        auto told = std::make_unique<Request>(request.kind, request.user);
        told->status = PENSTOCK_STORAGE;
        told->message = loss_;
        told->memory_lost = request.kind != PENSTOCK_COMMIT;
        finished_.push_back(std::move(told));
        Request& lost = *running_.front().release();
        running_.pop_front();
        lost.orphan();
    }
}

}  // namespace penstock::store
