// The functions of swap/capi/penstock.h on pools and leases.
#include "pinned_pool/pinned_pool.h"
#include "swap/capi/c_error.h"
#include "swap/capi/c_lease.h"
#include "swap/capi/penstock.h"

#include <memory>
#include <optional>
#include <utility>

namespace {

constexpr std::uint64_t most_bytes = 1ULL << 60;  // so that rounding up does not overflow

penstock::pool::Budget budget_of(std::uint64_t bytes) {
    penstock::store::require(bytes > 0 && bytes <= most_bytes, "a pool of {} bytes", bytes);
    const std::uint64_t rounded = penstock::pool::whole_granules(bytes);
    penstock::pool::Budget budget(rounded, "the bytes given to penstock_pool_create");
    budget.add({.name = "leases", .bytes = rounded, .setting = "the bytes given to penstock_pool_create"});
    return budget;
}

}  // namespace

struct penstock_pool {
    explicit penstock_pool(std::uint64_t bytes)
        : pool(budget_of(bytes), penstock::pool::MachineMemory::read(), {}), leases(pool.use("leases")) {}
    penstock::pool::PinnedPool pool;
    penstock::pool::UseId leases;
};

using penstock::store::guarded;
using penstock::store::Refusal;
using penstock::store::require;
using penstock::store::required;

penstock_status penstock_pool_create(uint64_t bytes, penstock_pool** pool, penstock_error* error) {
    return guarded(error, [&] {
        penstock_pool*& place = required(pool, "pool");
        place = nullptr;
        place = std::make_unique<penstock_pool>(bytes).release();
        return PENSTOCK_OK;
    });
}

// Memory that a stuck device has is granted for ever, and the pool's end leaves it to the process's.
penstock_status penstock_pool_destroy(penstock_pool* pool, penstock_error* error) {
    return guarded(error, [&] {
        if (pool == nullptr) return PENSTOCK_OK;
        const penstock::pool::UseFigures figures = pool->pool.figures(pool->leases);
        const std::uint64_t claimed = figures.granted_bytes - figures.orphaned_bytes;
        if (claimed > 0) {
            throw Refusal(PENSTOCK_BUSY,
                          fmt::format("{} bytes of the pool are leased or in use by an operation: release "
                                      "the leases and take the results first",
                                      claimed));
        }
        delete pool;
        return PENSTOCK_OK;
    });
}

const char* penstock_pool_note(const penstock_pool* pool, size_t index) {
    if (pool == nullptr || index >= pool->pool.notes().size()) return nullptr;
    return pool->pool.notes()[index].c_str();
}

penstock_status penstock_lease_acquire(penstock_pool* pool, uint64_t bytes, penstock_lease** lease,
                                       penstock_error* error) {
    return guarded(error, [&] {
        penstock_lease*& place = required(lease, "lease");
        place = nullptr;
        penstock_pool& owner = required(pool, "pool");
        require(bytes > 0, "a lease of 0 bytes");
        if (bytes > owner.pool.arena_bytes()) {
            throw Refusal(PENSTOCK_DOES_NOT_FIT,
                          fmt::format("a lease of {} bytes from a pool of {}", bytes, owner.pool.arena_bytes()));
        }
        auto made = std::make_unique<penstock_lease>();
        std::optional<penstock::pool::Lease> granted = owner.pool.try_acquire(owner.leases, bytes);
        if (!granted) {
            throw Refusal(PENSTOCK_BUSY, fmt::format("no free piece of {} bytes in the pool now: release a lease, or "
                                                     "take the results of operations on released ones",
                                                     bytes));
        }
        made->lease = std::move(*granted);
        place = made.release();
        return PENSTOCK_OK;
    });
}

void penstock_lease_release(penstock_lease* lease) {
    delete lease;
}

penstock_memory penstock_lease_memory(const penstock_lease* lease) {
    if (lease == nullptr) return {.data = nullptr, .bytes = 0, .lease = nullptr};
    return {.data = lease->lease.data(), .bytes = lease->lease.bytes(), .lease = const_cast<penstock_lease*>(lease)};
}
