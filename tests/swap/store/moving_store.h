// A client that rewrites every tile of a store in each round, in a seeded order, and knows outside of the store what
// every tile must hold.
#pragma once

#include "tests/swap/store/exercise.h"

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace penstock::testing {

// By tile index: the seed of its bytes; nothing where it was never written.
using TileSeeds = std::vector<std::optional<std::uint64_t>>;

class MovingStore {
   public:
    // Objects of several lengths; the last one is written from the second round on only.
    static std::vector<store::ObjectSpec> objects();

    MovingStore(aio::Io& io, store::TensorStore& store, std::uint64_t seed) : io_(io), store_(store), random_(seed) {
        newest_.resize(store.layout().tile_count());
    }

    // Writes `count` tiles (all by default), several at once, until all are done. Returns the first error.
    std::optional<store::StoreError> write_round(std::uint32_t count = UINT32_MAX);
    // That, and a commit.
    std::optional<store::StoreError> round();

    const TileSeeds& newest() const { return newest_; }
    const TileSeeds& committed() const { return committed_; }
    store::ClientState client() const {
        return {{"round", std::to_string(rounds_)}, {"step", std::to_string(rounds_)}};
    }

   private:
    aio::Io& io_;
    store::TensorStore& store_;
    std::mt19937_64 random_;
    std::uint64_t rounds_ = 0;
    TileSeeds newest_;
    TileSeeds committed_;
};

// Compares every byte, and which tiles were written. Empty, or the first difference.
std::string difference(aio::Io& io, store::TensorStore& store, const TileSeeds& seeds);

}  // namespace penstock::testing
