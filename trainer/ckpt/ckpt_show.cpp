// What a store or a snapshot holds: objects, tiles, client state.
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "trainer/ckpt/ckpt.h"
#include "trainer/ckpt/ckpt_store.h"
#include "trainer/cli/ckpt_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace penstock::trainer {
namespace {

using nlohmann::ordered_json;

store::StoreLook look_for(const CkptRequest& request) {
    const std::string path = request.name.empty() ? request.directory : snapshot_path(request);
    std::optional<store::StoreLook> look = look_at_store(path);
    if (!look) throw Error(ExitCode::storage, fmt::format("{}: the directory is no store's; check the path", path));
    if (look->recovery.newest) return std::move(*look);
    const std::vector<std::string> problems = look->problems();
    throw Error(ExitCode::storage,
                fmt::format("{}: there is nothing to show: {}", path,
                            look->recovery.never_committed() ? "nothing was committed yet"
                                                             : fmt::format("{}", fmt::join(problems, "; "))));
}

std::uint32_t written_count(const store::Manifest& manifest, const store::Layout& layout, std::uint32_t object) {
    const auto first = manifest.tiles.begin() + layout.tile_index({object, 0});
    return static_cast<std::uint32_t>(std::count_if(first, first + layout.tile_count(object),
                                                    [](const store::TileRecord& record) { return record.written; }));
}

ordered_json json_of_tile(const store::TileRecord& record) {
    if (!record.written) return nullptr;
    return {{"hash", fmt::format("{:016x}{:016x}", record.hash.high, record.hash.low)},
            {"generation", record.generation},
            {"slot", record.slot}};
}

ordered_json json_of_object(const store::Manifest& manifest, const store::Layout& layout, std::uint32_t object) {
    const store::ObjectSpec& spec = layout.objects()[object];
    ordered_json tiles = ordered_json::array();
    for (std::uint32_t tile = 0; tile < layout.tile_count(object); ++tile)
        tiles.push_back(json_of_tile(manifest.tiles[layout.tile_index({object, tile})]));
    return {{"name", spec.name}, {"bytes", spec.bytes}, {"tile_bytes", spec.tile_bytes}, {"tiles", std::move(tiles)}};
}

std::string json_text(const store::StoreLook& look, const store::Layout& layout) {
    const store::Manifest& manifest = *look.recovery.newest;
    ordered_json object = {{"path", look.path},
                           {"uuid", store::to_string(manifest.store)},
                           {"job", look.lock.job},
                           {"generation", manifest.generation},
                           {"incarnation", manifest.incarnation},
                           {"time_s", manifest.time_s},
                           {"step", json_of_step(manifest.client)},
                           {"origin", nullptr},
                           {"slots", manifest.geometry.slots},
                           {"granule_bytes", manifest.geometry.granule_bytes},
                           {"shares", manifest.geometry.shares},
                           {"client", ordered_json::object()},
                           {"objects", ordered_json::array()}};
    if (manifest.origin)
        object["origin"] = {{"store", store::to_string(manifest.origin->store)},
                            {"generation", manifest.origin->generation},
                            {"shares_blocks", manifest.hashed_as == store::HashedAs::origin}};
    for (const auto& [key, value] : manifest.client) object["client"][key] = json_of_value(value);
    for (std::uint32_t i = 0; i < layout.objects().size(); ++i)
        object["objects"].push_back(json_of_object(manifest, layout, i));
    return dump(object);
}

std::string human_text(const store::StoreLook& look, const store::Layout& layout) {
    const store::Manifest& manifest = *look.recovery.newest;
    std::string text = fmt::format("{}: store {}, generation {}, incarnation {}, committed {}\n", look.path,
                                   store::to_string(manifest.store), manifest.generation, manifest.incarnation,
                                   time_text(manifest.time_s));
    if (manifest.origin) text += fmt::format("a snapshot of {}\n", origin_text(manifest));
    text += fmt::format("{} slot{} per tile, granule {} B, {} device{}, shares {}\n\n", manifest.geometry.slots,
                        manifest.geometry.slots == 1 ? "" : "s", manifest.geometry.granule_bytes, layout.device_count(),
                        layout.device_count() == 1 ? "" : "s", fmt::join(manifest.geometry.shares, ":"));
    std::vector<std::vector<std::string>> rows = {{"BYTES", "TILES", "WRITTEN", "TILE", "OBJECT"}};
    for (std::uint32_t i = 0; i < layout.objects().size(); ++i) {
        const store::ObjectSpec& spec = layout.objects()[i];
        rows.push_back({size_text(spec.bytes), std::to_string(layout.tile_count(i)),
                        std::to_string(written_count(manifest, layout, i)), size_text(spec.tile_bytes), spec.name});
    }
    text += table_text(rows) + "\n";
    rows = {{"CLIENT STATE", ""}};
    for (const auto& [key, value] : manifest.client) rows.push_back({value_text(key), value_text(value)});
    return text + table_text(rows);
}

}  // namespace

CkptResult ckpt_show(const CkptRequest& request) {
    const store::StoreLook look = look_for(request);
    const store::Layout layout(look.recovery.newest->objects, look.recovery.newest->geometry);
    return {.text = request.json ? json_text(look, layout) : human_text(look, layout)};
}

}  // namespace penstock::trainer
