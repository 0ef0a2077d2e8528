// What a C program has asked of a store and will hear of: an operation on a range of tiles, or a commit.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/capi/c_range.h"
#include "swap/capi/penstock.h"
#include "swap/store/tensor_store.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace penstock::store {

class Request;
using RequestList = std::list<std::unique_ptr<Request>>;  // a request goes from one to the other without an allocation

class RequestListener {
   public:
    virtual void request_finished(Request& request) noexcept = 0;  // from Io::poll() or wait()

   protected:
    ~RequestListener() = default;
};

// Also what is told of a request that a stuck device keeps for ever, in its place.
class Request {
   public:
    Request(penstock_kind wanted, void* callers) : kind(wanted), user(callers) {}
    virtual ~Request() = default;
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;
    // A stuck device has it: neither it nor its memory is ever freed.
    virtual void orphan() noexcept {}

    void fail(const std::optional<StoreError>& error) noexcept;  // the first error counts

    const penstock_kind kind;
    void* const user;
    penstock_status status = PENSTOCK_OK;
    std::string message;
    bool memory_lost = false;
    TileRange range;              // a commit has none
    RequestList::iterator place;  // in the list that owns it
};

// Keeps up to 64 tiles in flight, so that a tensor of any length costs the same few records. A read ends early after an
// error; a write goes on, so that each of its tiles was either written or is known to the store as failed.
class RangeRequest final : public Request {
   public:
    // `memory` obeys the store (penstock_range_bytes, penstock_alignment), and so does the urgency. Nothing begins yet.
    RangeRequest(penstock_kind wanted, void* callers, TensorStore& store, const TileRange& tiles,
                 std::span<std::byte> memory, aio::Urgency urgency, pool::Hold hold, RequestListener& listener);
    // REQUIRES: no other operation on the tiles; for a read all were written; for a write no commit is under way, until
    // it has ended.
    void begin();
    void orphan() noexcept override { hold_.orphan(); }

   private:
    struct Part final : TileOperation {
        RangeRequest* owner = nullptr;
        void tile_done() noexcept override { owner->part_done(*this); }
    };
    void begin_next(Part& part);
    void part_done(Part& part) noexcept;

    TensorStore& store_;
    const std::span<std::byte> memory_;
    const aio::Urgency urgency_;
    pool::Hold hold_;  // on the lease that the memory is of, or empty
    RequestListener& listener_;
    const std::size_t part_count_;
    const std::unique_ptr<Part[]> parts_;
    std::uint32_t next_ = 0;  // tile of the range that was not begun yet
    std::uint32_t in_flight_ = 0;
};

class CommitRequest final : public Request {
   public:
    CommitRequest(void* callers, RequestListener& listener);
    // As TensorStore::commit(), exceptions included: then nothing has begun.
    void begin(TensorStore& store, const ClientState& client) { store.commit(operation_, client); }

   private:
    struct Operation final : CommitOperation {
        explicit Operation(CommitRequest& request) : owner(request) {}
        CommitRequest& owner;
        void committed() noexcept override { owner.ended(); }
    };
    void ended() noexcept;

    RequestListener& listener_;
    Operation operation_;
};

}  // namespace penstock::store
