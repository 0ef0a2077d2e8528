// What a store of the kill tests is like and what its tiles hold: all a function of seeds, so that no expected byte has
// to be kept.
#pragma once

#include "swap/store/tensor_store.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::testing {

// Which tiles a client reads before it writes them; the others it has in memory.
enum class Residency : std::uint8_t { ram, mixed, nvme };
const char* to_string(Residency residency) noexcept;

struct KillPlan {
    std::uint64_t seed = 0;
    std::vector<store::ObjectSpec> objects;
    store::StoreKind kind =
        store::StoreKind::durable;  // or scratch: nothing is ever committed, so that a kill must lose all
    std::size_t directory_count = 1;
    aio::Caching caching = aio::Caching::direct;
    std::optional<aio::BackendKind> backend;  // none: the best that works here
    std::uint64_t steps_per_commit = 1;       // 1: every step is durable
    Residency residency = Residency::nvme;
    std::uint32_t written_of_8 = 8;  // tiles that a step writes
    std::size_t in_flight = 2;       // operations at once, at least 2
};

KillPlan draw_plan(std::uint64_t seed);

// The only place where stores of these tests are made or opened. Throws Error as TensorStore does.
std::unique_ptr<store::TensorStore> create_store(aio::Io& io, const std::vector<store::StoreDirectory*>& directories,
                                                 const KillPlan& plan);
std::unique_ptr<store::TensorStore> open_store(aio::Io& io, const std::vector<store::StoreDirectory*>& directories,
                                               const KillPlan& plan);

// What one tile holds is named by its version, which is never used twice in a store; 0: never written. The bytes past
// the tile's length are what a client leaves there, not the zeros of the store.
using Version = std::uint64_t;
void fill_version(std::span<std::byte> memory, const KillPlan& plan, store::TileId tile, Version version);
// Whether `extent` is what a read must give.
bool holds_version(std::span<const std::byte> extent, std::uint64_t tile_bytes, const KillPlan& plan,
                   store::TileId tile, Version version);

// The client's state in a commit that is named by `stamp`: also of lengths that take several pages.
store::ClientState client_of(Version stamp);

// A drawing of its own for each set of numbers.
std::uint64_t draw(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) noexcept;

}  // namespace penstock::testing
