// Who hashes the tiles of a store under test: what a store promises is the same whoever does, so suites run once with
// each.
#pragma once

#include "swap/hashing/hash_crew.h"
#include "tests/swap/hashing/hashers_at_once.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace penstock::testing {

// Keeps what it is given until the test says so.
class HeldHashers final : public store::TileHashers {
   public:
    explicit HeldHashers(aio::Io& io) : TileHashers(1), io_(io) {}
    void begin(store::HashJob& job) noexcept override { held.push_back(&job); }
    // The oldest one; with `wrong`, as if its bytes were others.
    void let_go(bool wrong = false) {
        store::HashJob& job = *held.front();
        held.erase(held.begin());
        job.hash = store::hash_tile(job.bytes, job.identity);
        if (wrong) ++job.hash.low;
        io_.give_back(*job.transfer);
    }
    std::vector<store::HashJob*> held;

   private:
    aio::Io& io_;
};

enum class HashedBy : std::uint8_t { store, at_once, crew };

// Built between Io and store. Null for the store itself.
inline std::unique_ptr<store::TileHashers> hashers_of(HashedBy who, aio::Io& io) {
    if (who == HashedBy::store) return nullptr;
    if (who == HashedBy::at_once) return std::make_unique<HashersAtOnce>(io);
    return std::make_unique<store::HashCrew>(io, store::Hashing{.threads = 2, .least_bytes = 1});
}

inline std::string name_of_hashers(const ::testing::TestParamInfo<HashedBy>& who) {
    return who.param == HashedBy::store ? "Store" : who.param == HashedBy::at_once ? "AtOnce" : "Crew";
}

inline auto anybody() {
    return ::testing::Values(HashedBy::store, HashedBy::at_once, HashedBy::crew);
}

}  // namespace penstock::testing
