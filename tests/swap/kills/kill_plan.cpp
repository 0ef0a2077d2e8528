#include "tests/swap/kills/kill_plan.h"

#include "tests/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace penstock::testing {
namespace {

store::ObjectSpec draw_object(std::mt19937_64& random, std::size_t index) {
    const std::uint64_t bytes = 1 + random() % (random() % 3 == 0 ? 9000 : 120'000);
    // From many tiles with odd ends to one tile that is longer than the object.
    const std::uint64_t tile_bytes = std::max<std::uint64_t>(bytes / 16, 1 + random() % 40'000);
    return {fmt::format("object{}", index), bytes, tile_bytes};
}

}  // namespace

const char* to_string(Residency residency) noexcept {
    switch (residency) {
        case Residency::ram:
            return "in RAM";
        case Residency::mixed:
            return "mixed";
        case Residency::nvme:
            return "on NVMe";
    }
    return "?";
}

std::uint64_t draw(std::uint64_t seed, std::uint64_t a, std::uint64_t b, std::uint64_t c) noexcept {
    return mix(mix(mix(mix(seed) ^ a) ^ b) ^ c);
}

KillPlan draw_plan(std::uint64_t seed) {
    std::mt19937_64 random(mix(seed));
    KillPlan plan{.seed = seed};
    const std::size_t object_count = 1 + random() % 5;
    for (std::size_t i = 0; i < object_count; ++i) plan.objects.push_back(draw_object(random, i));
    // Now and then a tile of more than one chunk of the Io.
    if (random() % 8 == 0) plan.objects.push_back({"long", 2'500'001, 2'100'000});
    plan.directory_count = random() % 2 == 0 ? 1 : 2 + random() % 2;
    plan.caching = random() % 2 == 0 ? aio::Caching::direct : aio::Caching::buffered;
    if (random() % 3 == 0) plan.backend = aio::BackendKind::threads;
    // In turn, so that a few stores have had all of them.
    plan.steps_per_commit = seed % 2 == 0 ? 1 : 2 + random() % 4;
    plan.residency = static_cast<Residency>(seed / 2 % 3);
    plan.written_of_8 = 2 + static_cast<std::uint32_t>(random() % 7);
    plan.in_flight = 2 + random() % 7;
    return plan;
}

std::unique_ptr<store::TensorStore> create_store(aio::Io& io, const std::vector<store::StoreDirectory*>& directories,
                                                 const KillPlan& plan) {
    return store::TensorStore::create(io, directories,
                                      {.objects = plan.objects, .kind = plan.kind, .caching = plan.caching});
}

std::unique_ptr<store::TensorStore> open_store(aio::Io& io, const std::vector<store::StoreDirectory*>& directories,
                                               const KillPlan& plan) {
    return store::TensorStore::open(io, directories, {.caching = plan.caching});
}

void fill_version(std::span<std::byte> memory, const KillPlan& plan, store::TileId tile, Version version) {
    std::uint64_t state = draw(plan.seed, tile.object, tile.tile, version);
    for (std::size_t at = 0; at < memory.size(); at += sizeof state) {
        state = state * 6364136223846793005 + 1442695040888963407;
        const std::uint64_t word = state ^ (state >> 29);
        std::memcpy(memory.data() + at, &word, std::min(sizeof word, memory.size() - at));
    }
}

bool holds_version(std::span<const std::byte> extent, std::uint64_t tile_bytes, const KillPlan& plan,
                   store::TileId tile, Version version) {
    std::vector<std::byte> right(extent.size());
    fill_version(right, plan, tile, version);
    std::fill(right.begin() + static_cast<std::ptrdiff_t>(tile_bytes), right.end(), std::byte{0});
    return std::equal(extent.begin(), extent.end(), right.begin());
}

store::ClientState client_of(Version stamp) {
    return {{"stamp", std::to_string(stamp)}, {"note", std::string(draw(stamp, 0) % 9 * 1000, 'n')}};
}

}  // namespace penstock::testing
