#include "tests/swap/store/exercise.h"

#include "aio/words/error.h"

#include "tests/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace penstock::testing {
namespace {

constexpr std::uint32_t frozen_object = 2;

std::uint64_t mix_of(std::uint64_t seed, store::TileId tile, std::uint64_t generation) {
    return mix(mix(mix(seed) ^ (std::uint64_t{tile.object} << 32 | tile.tile)) ^ generation);
}

template <typename Operation>
std::optional<store::StoreError> finish(aio::Io& io, Operation& operation) {
    while (!operation.idle()) io.wait(std::chrono::seconds(1));
    return operation.error();
}

std::vector<store::TileId> all_tiles(const store::Layout& layout) {
    std::vector<store::TileId> tiles;
    for (std::uint32_t i = 0; i < layout.tile_count(); ++i) tiles.push_back(layout.tile(i));
    return tiles;
}

}  // namespace

std::optional<store::StoreError> read_tile(aio::Io& io, store::TensorStore& store, store::TileId tile,
                                           std::span<std::byte> memory) {
    TestTile operation;
    store.read(operation, tile, memory, aio::Urgency::demand);
    return finish(io, operation);
}

std::optional<store::StoreError> write_tile(aio::Io& io, store::TensorStore& store, store::TileId tile,
                                            std::span<std::byte> memory) {
    TestTile operation;
    store.write(operation, tile, memory, aio::Urgency::write_back);
    return finish(io, operation);
}

std::optional<store::StoreError> commit(aio::Io& io, store::TensorStore& store, const store::ClientState& client) {
    TestCommit operation;
    store.commit(operation, client);
    return finish(io, operation);
}

std::string storage_refusal(const std::function<void()>& open) {
    try {
        open();
    } catch (const Error& error) {
        if (error.code() != ExitCode::storage) throw;
        return error.what();
    }
    return "opened";
}

void flip_bit(const std::string& path, std::uint64_t offset_bytes, unsigned bit) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(offset_bytes));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset_bytes));
    file.put(static_cast<char>(byte ^ (1 << bit)));
    if (!file.flush()) throw std::runtime_error("no bit could be turned over in " + path);
}

std::vector<std::string> notes_of(const store::TensorStore& store) {
    std::vector<std::string> notes = store.notes();
    std::erase_if(notes, [](const std::string& note) {
        return note.find("goes through the page cache, because") != std::string::npos;
    });
    return notes;
}

std::vector<store::ObjectSpec> Exercise::objects() {
    return {
        {"block.weights", 40'000, 8192}, {"block.states", 100'001, 16'384}, {"frozen", 9000, 4096}, {"tiny", 1, 4096}};
}

// Generation 0 writes all; later ones leave a quarter of the tiles alone, and the frozen object wholly.
bool Exercise::changes(store::TileId tile, std::uint64_t generation) const {
    if (generation == 0) return true;
    return tile.object != frozen_object && mix_of(seed_ + 1, tile, generation) % 4 != 0;
}

std::uint64_t Exercise::last_change(store::TileId tile, std::uint64_t generation) const {
    while (!changes(tile, generation)) --generation;
    return generation;
}

void Exercise::fill(std::span<std::byte> memory, store::TileId tile, std::uint64_t generation) const {
    std::uint64_t state = mix_of(seed_, tile, generation);
    for (std::byte& byte : memory) {
        state = state * 6364136223846793005 + 1442695040888963407;
        byte = static_cast<std::byte>(state >> 56);
    }
}

std::optional<store::StoreError> Exercise::write(aio::Io& io, store::TensorStore& store,
                                                 std::uint64_t generation) const {
    std::deque<TestTile> operations;
    std::deque<aio::ScratchMemory> memories;
    std::optional<store::StoreError> first;
    for (const store::TileId tile : all_tiles(store.layout())) {
        if (!changes(tile, generation)) continue;
        aio::ScratchMemory& memory = memories.emplace_back(store.extent_bytes(tile));
        if (mix_of(seed_ + 2, tile, generation) % 8 == 0) {  // written twice in one generation: the second counts
            fill(memory.span(), tile, generation + 1'000'000);
            first = write_tile(io, store, tile, memory.span());
            if (first) break;
        }
        fill(memory.span(), tile, generation);  // also past the tile's length: the store clears that
        store.write(operations.emplace_back(), tile, memory.span(), aio::Urgency::write_back);
    }
    for (TestTile& operation : operations) {
        const auto error = finish(io, operation);
        if (error && !first) first = error;
    }
    return first;
}

std::optional<store::StoreError> Exercise::advance(aio::Io& io, store::TensorStore& store,
                                                   std::uint64_t generation) const {
    if (const auto error = write(io, store, generation)) return error;
    return commit(io, store,
                  {{"generation", std::to_string(generation)}, {"note", std::string(generation % 7 * 700, 'n')}});
}

std::string Exercise::difference(aio::Io& io, store::TensorStore& store, std::uint64_t generation) const {
    if (store.generation()) {
        const std::uint64_t named = store.origin() ? store.origin()->generation : *store.generation();
        if (store.client().at("generation") != std::to_string(named)) return "the client's state";
    }
    for (const store::TileId tile : all_tiles(store.layout())) {
        aio::ScratchMemory memory(store.extent_bytes(tile));
        aio::ScratchMemory expected(store.extent_bytes(tile));
        std::fill_n(memory.data(), store.extent_bytes(tile), std::byte{0xaa});
        if (const auto error = read_tile(io, store, tile, memory.span())) return error->message;
        fill(expected.span(), tile, last_change(tile, generation));
        std::fill(expected.data() + store.layout().tile_bytes(tile), expected.data() + store.extent_bytes(tile),
                  std::byte{0});
        if (!std::equal(memory.data(), memory.data() + store.extent_bytes(tile), expected.data())) {
            return fmt::format("object {} tile {} is not that of generation {}", tile.object, tile.tile, generation);
        }
    }
    return {};
}

}  // namespace penstock::testing
