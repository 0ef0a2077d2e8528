// What a C program's handle stands for: a store with its ring, the requests on it, and every check that stands between
// a C caller's mistake and the contracts of TensorStore, which abort.
#pragma once

#include "swap/capi/c_lease.h"
#include "swap/capi/c_open.h"
#include "swap/capi/c_ready.h"
#include "swap/capi/c_request.h"
#include "swap/capi/penstock.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::store {

// One thread at a time. Calls that refuse throw Refusal or Error and have changed nothing. Operations in flight must be
// gone before it is destroyed (close_refusal()).
class CStore final : private RequestListener {
   public:
    explicit CStore(OpenStore open);

    const TensorStore& store() const noexcept { return open_.store(); }
    const char* backend_name() const noexcept { return open_.io().backend_name(); }
    const char* note(std::size_t index) const noexcept;  // null past the last
    int event_fd() const noexcept { return ready_.fd(); }

    void set_client(const std::string& key, const void* value, std::size_t bytes);

    // `urgency`: number_of() a penstock_urgency.
    void start_range(penstock_kind kind, penstock_range range, const penstock_memory& memory, int urgency, void* user);
    void start_commit(void* user);
    // PENSTOCK_OK, PENSTOCK_TIMEOUT or PENSTOCK_IDLE.
    penstock_status next(std::int64_t timeout_ms, penstock_result& result);

    // Throws Refusal (usage) when there are no such tiles, (`status`) when one of them was never written.
    void require_written(penstock_range range, penstock_status status) const;
    void require_closable() const;  // throws Refusal (busy) while operations are in flight
    // A stuck device has memory of it: it must never be destroyed.
    bool lost() const noexcept { return !loss_.empty(); }

   private:
    RequestListener& listener() noexcept { return *this; }
    void request_finished(Request& request) noexcept override;
    void require_alive() const;
    void require_free(const TileRange& range) const;
    std::span<std::byte> checked(const penstock_memory& memory, std::uint64_t needed_bytes) const;
    void mark(const TileRange& range, bool busy) noexcept;
    void advance(std::chrono::nanoseconds timeout);
    void advance_begun() noexcept;
    void lose(const aio::OldestTransfer& stuck);
    void give_up_running();
    void take(penstock_result& result) noexcept;
    void update_ready() noexcept {
        ready_.update(!finished_.empty() || (!lost() && open_.io().due()), !running_.empty());
    }

    OpenStore open_;
    ReadyDescriptor ready_;
    ClientState client_;      // of the next commit
    std::vector<bool> busy_;  // by Layout::tile_index: of a request that runs, begun or not
    RequestList running_;
    RequestList finished_;            // in the order in which they ended
    std::unique_ptr<Request> taken_;  // whose message the caller may still read
    std::size_t writes_ = 0;          // that run
    bool committing_ = false;
    std::string loss_;  // why nothing is served any more
};

}  // namespace penstock::store

struct penstock_store {
    explicit penstock_store(penstock::store::OpenStore open) : store(std::move(open)) {}
    penstock::store::CStore store;
};
