#include "swap/store/blocking.h"

#include "aio/words/error.h"
#include "swap/store/long_work.h"

#include <algorithm>
#include <memory>

namespace penstock::store {
namespace {

struct WaitedTile final : TileOperation {
    void tile_done() noexcept override {}
};

struct WaitedCommit final : CommitOperation {
    void committed() noexcept override {}
};

template <typename Operation>
void wait_for(aio::Io& io, TensorStore& store, std::unique_ptr<Operation> operation,
              std::chrono::nanoseconds deadline) {
    const auto start = std::chrono::steady_clock::now();
    while (!operation->idle()) {
        const auto waited = std::chrono::steady_clock::now() - start;
        if (waited >= deadline) {
            store.abandon();
            static_cast<void>(operation.release());  // the device still holds it
            throw_stuck(io);
        }
        io.wait(deadline - waited);
    }
    if (operation->error()) throw Error(ExitCode::storage, operation->error()->message);
}

}  // namespace

void read_blocking(aio::Io& io, TensorStore& store, TileId tile, std::span<std::byte> memory,
                   std::chrono::nanoseconds deadline) {
    auto operation = std::make_unique<WaitedTile>();
    store.read(*operation, tile, memory, aio::Urgency::demand);
    wait_for(io, store, std::move(operation), deadline);
}

void write_blocking(aio::Io& io, TensorStore& store, TileId tile, std::span<std::byte> memory,
                    std::chrono::nanoseconds deadline) {
    auto operation = std::make_unique<WaitedTile>();
    store.write(*operation, tile, memory, aio::Urgency::write_back);
    wait_for(io, store, std::move(operation), deadline);
}

void commit_blocking(aio::Io& io, TensorStore& store, const ClientState& client, std::chrono::nanoseconds deadline) {
    auto operation = std::make_unique<WaitedCommit>();
    store.commit(*operation, client);
    wait_for(io, store, std::move(operation), deadline);
}

}  // namespace penstock::store
