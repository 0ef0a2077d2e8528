// Some operations at a time, waited for: for who moves many tiles once, and would leave the device idle with one.
#pragma once

#include "aio/io.h"
#include "swap/store/tensor_store.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace penstock::store {

// On the store's thread. Io and store outlive it.
class TilesInFlight {
   public:
    // At most `most` operations, one at least.
    TilesInFlight(aio::Io& io, TensorStore& store, std::size_t most);
    // As end(): memory must stay allocated where that is false.
    ~TilesInFlight();
    TilesInFlight(const TilesInFlight&) = delete;
    TilesInFlight& operator=(const TilesInFlight&) = delete;

    // Begins it, once there are fewer than `most`: blocks until then, polling the Io as read_blocking() does. Memory is
    // this object's until finish() or end(). Throws as finish(). REQUIRES: as TensorStore's.
    void read(TileId tile, std::span<std::byte> memory);
    void write(TileId tile, std::span<std::byte> memory);
    // Waits for all. Throws Error (storage): with the message of one that failed, once the others have ended; or when a
    // device is stuck: then the store is abandoned, and memory must stay allocated until the process has ended.
    void finish();
    // Waits for all whatever becomes of them. False: a device is stuck, as above.
    bool end() noexcept;

   private:
    struct Operation final : TileOperation {
        void tile_done() noexcept override {}
    };

    Operation& free_one();
    void wait_until(const std::function<bool()>& reached);
    bool ended() const noexcept;
    const StoreError* failure() const noexcept;

    aio::Io* io_;
    TensorStore* store_;
    std::vector<std::unique_ptr<Operation>> operations_;
};

}  // namespace penstock::store
