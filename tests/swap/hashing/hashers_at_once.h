// Hashers without a thread. For matrices too, so without GoogleTest.
#pragma once

#include "aio/io.h"
#include "swap/hashing/tile_hashers.h"

#include <cstdint>

namespace penstock::testing {

// Hashes within begin(): all the stages of an operation, in an order that is the same each time.
class HashersAtOnce final : public store::TileHashers {
   public:
    explicit HashersAtOnce(aio::Io& io) : TileHashers(1), io_(io) {}
    void begin(store::HashJob& job) noexcept override {
        ++jobs;
        job.hash = store::hash_tile(job.bytes, job.identity);
        io_.give_back(*job.transfer);
    }
    std::uint64_t jobs = 0;

   private:
    aio::Io& io_;
};

}  // namespace penstock::testing
