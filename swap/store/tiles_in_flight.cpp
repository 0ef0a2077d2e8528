#include "swap/store/tiles_in_flight.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "swap/store/long_work.h"

#include <algorithm>

namespace penstock::store {

TilesInFlight::TilesInFlight(aio::Io& io, TensorStore& store, std::size_t most) : io_(&io), store_(&store) {
    PENSTOCK_CHECK(most > 0, "no operation may be in flight");
    for (std::size_t index = 0; index < most; ++index) operations_.push_back(std::make_unique<Operation>());
}

TilesInFlight::~TilesInFlight() {
    if (end()) return;
    for (std::unique_ptr<Operation>& operation : operations_)
        if (!operation->idle()) static_cast<void>(operation.release());  // the device still holds it
}

void TilesInFlight::read(TileId tile, std::span<std::byte> memory) {
    store_->read(free_one(), tile, memory, aio::Urgency::demand);
}

void TilesInFlight::write(TileId tile, std::span<std::byte> memory) {
    store_->write(free_one(), tile, memory, aio::Urgency::write_back);
}

void TilesInFlight::finish() {
    wait_until([this] { return ended(); });
    if (const StoreError* failed = failure()) throw Error(ExitCode::storage, failed->message);
}

bool TilesInFlight::end() noexcept {
    if (!store_->abandoned()) {
        try {
            wait_until([this] { return ended(); });
        } catch (const std::exception&) {
            return false;
        }
    }
    return ended();
}

// One that has ended; what failed before ends the work here.
TilesInFlight::Operation& TilesInFlight::free_one() {
    const auto is_idle = [](const std::unique_ptr<Operation>& each) { return each->idle(); };
    auto found = operations_.end();
    wait_until([&] {
        found = std::find_if(operations_.begin(), operations_.end(), is_idle);
        return found != operations_.end();
    });
    if (failure() != nullptr) finish();
    return **found;
}

void TilesInFlight::wait_until(const std::function<bool()>& reached) {
    advance_until(*io_, reached, [this] { store_->abandon(); });
}

bool TilesInFlight::ended() const noexcept {
    return std::all_of(operations_.begin(), operations_.end(), [](const auto& each) { return each->idle(); });
}

const StoreError* TilesInFlight::failure() const noexcept {
    for (const std::unique_ptr<Operation>& operation : operations_)
        if (operation->idle() && operation->error()) return &*operation->error();
    return nullptr;
}

}  // namespace penstock::store
