#include "tests/swap/store/moving_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock::testing {
namespace {

constexpr std::size_t writes_at_once = 4;

struct Writer final : store::TileOperation {
    explicit Writer(std::size_t bytes) : memory(bytes) {}
    aio::ScratchMemory memory;
    void tile_done() noexcept override {}
};

}  // namespace

std::vector<store::ObjectSpec> MovingStore::objects() {
    return {{"a.weights", 50'000, 8192}, {"a.states", 150'001, 16'384}, {"tiny", 3, 4096}, {"late", 9000, 4096}};
}

std::optional<store::StoreError> MovingStore::write_round(std::uint32_t count) {
    const store::Layout& layout = store_.layout();
    std::vector<std::uint32_t> order(layout.tile_count());
    std::iota(order.begin(), order.end(), 0U);
    if (rounds_ == 0) std::erase_if(order, [&](std::uint32_t index) { return layout.tile(index).object == 3; });
    std::shuffle(order.begin(), order.end(), random_);
    order.resize(std::min<std::size_t>(order.size(), count));
    std::optional<store::StoreError> first;
    std::deque<Writer> writers;
    const auto collect = [&](Writer& writer) {
        while (!writer.idle()) io_.wait(std::chrono::seconds(1));
        if (writer.error() && !first) first = writer.error();
    };
    for (const std::uint32_t index : order) {
        if (writers.size() == writes_at_once) {
            collect(writers.front());
            writers.pop_front();
        }
        const store::TileId tile = layout.tile(index);
        Writer& writer = writers.emplace_back(store_.extent_bytes(tile));
        newest_[index] = random_();
        aio::fill_random(writer.memory.span(), *newest_[index]);
        store_.write(writer, tile, writer.memory.span(), aio::Urgency::write_back);
        if (random_() % 4 == 0) io_.poll();
    }
    for (Writer& writer : writers) collect(writer);
    return first;
}

std::optional<store::StoreError> MovingStore::round() {
    if (auto error = write_round()) return error;
    ++rounds_;
    if (auto error = commit(io_, store_, client())) return error;
    committed_ = newest_;
    return std::nullopt;
}

std::string difference(aio::Io& io, store::TensorStore& store, const TileSeeds& seeds) {
    for (std::uint32_t index = 0; index < seeds.size(); ++index) {
        const store::TileId tile = store.layout().tile(index);
        const std::string name = fmt::format("tile {} of object {}", tile.tile, tile.object);
        if (store.written(tile) != seeds[index].has_value()) return name + (seeds[index] ? " is missing" : " is there");
        if (!seeds[index]) continue;
        aio::ScratchMemory found(store.extent_bytes(tile));
        aio::ScratchMemory expected(store.extent_bytes(tile));
        if (const auto error = read_tile(io, store, tile, found.span())) return error->message;
        aio::fill_random(expected.span(), *seeds[index]);
        const auto logical = static_cast<std::ptrdiff_t>(store.layout().tile_bytes(tile));
        if (!std::equal(found.data(), found.data() + logical, expected.data())) return name + " has other bytes";
    }
    return {};
}

}  // namespace penstock::testing
