#include "swap/store/blocking.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "swap/store/long_work.h"

#include <memory>
#include <optional>
#include <utility>

namespace penstock::store {
namespace {

struct WaitedTile final : TileOperation {
    void tile_done() noexcept override {}
};

struct WaitedCommit final : CommitOperation {
    void committed() noexcept override {}
};

// As an operation: what was found is durable, or cannot be.
struct WaitedFooting final {
    explicit WaitedFooting(TensorStore& waited) : store(waited) {}
    TensorStore& store;
    bool idle() const noexcept { return store.settled() || store.poisoned(); }
    std::optional<StoreError> error() const {
        if (store.settled()) return std::nullopt;
        return StoreError{.kind = StoreError::Kind::poisoned, .message = store.poisoned_by()};
    }
};

template <typename Operation>
void wait_for(aio::Io& io, TensorStore& store, std::unique_ptr<Operation> operation) {
    const auto abandon = [&] {
        store.abandon();
        static_cast<void>(operation.release());  // the device still holds it
    };
    advance_until(
        io, [waited = operation.get()] { return waited->idle(); }, abandon);
    if (const auto error = operation->error()) throw Error(ExitCode::storage, error->message);
}

}  // namespace

void read_blocking(aio::Io& io, TensorStore& store, TileId tile, std::span<std::byte> memory) {
    auto operation = std::make_unique<WaitedTile>();
    store.read(*operation, tile, memory, aio::Urgency::demand);
    wait_for(io, store, std::move(operation));
}

void write_blocking(aio::Io& io, TensorStore& store, TileId tile, std::span<std::byte> memory) {
    auto operation = std::make_unique<WaitedTile>();
    store.write(*operation, tile, memory, aio::Urgency::write_back);
    wait_for(io, store, std::move(operation));
}

void commit_blocking(aio::Io& io, TensorStore& store, const ClientState& client) {
    auto operation = std::make_unique<WaitedCommit>();
    store.commit(*operation, client);
    wait_for(io, store, std::move(operation));
}

void settle_blocking(aio::Io& io, TensorStore& store) {
    store.settle();
    wait_for(io, store, std::make_unique<WaitedFooting>(store));
}

}  // namespace penstock::store
