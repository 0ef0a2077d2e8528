// Finds what is damaged in a store, and puts right what can be put right without losing anything.
#include "aio/words/error.h"
#include "pinned_pool/region.h"
#include "swap/directory/lock_rebuild.h"
#include "swap/snapshot/repair.h"
#include "swap/snapshot/snapshot_copy.h"
#include "swap/store/blocking.h"
#include "swap/store/verify.h"
#include "trainer/ckpt/ckpt.h"
#include "trainer/ckpt/ckpt_store.h"
#include "trainer/cli/ckpt_words.h"
#include "trainer/cli/console.h"
#include "trainer/cli/progress_line.h"
#include "trainer/cli/remedies.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

namespace penstock::trainer {
namespace {

using nlohmann::ordered_json;

struct Snapshot {
    std::string name;
    store::OpenStore opened;
};

struct TileFate {
    store::TileId tile;
    store::FoundBytes found;  // in the snapshots
};

// One scrubbing of one store.
struct Scrub {
    std::string path;
    std::vector<std::string> locks;      // what was done to them
    std::vector<std::string> manifests;  // the same
    store::VerifyReport report;
    std::vector<Snapshot> snapshots;
    std::vector<TileFate> fates;  // of the damaged tiles
    bool mended = false;

    bool whole() const { return report.damaged_tiles == 0 || mended; }
};

// Those of the same model, newest first.
std::vector<Snapshot> open_snapshots(const CkptRequest& request, const store::OpenStore& store, Console& console) {
    std::vector<Snapshot> opened;
    for (const store::ListedSnapshot& snapshot : store::list_snapshots(snapshot_folder_of(request))) {
        if (!snapshot.manifest || snapshot.manifest->objects != store.store().layout().objects()) continue;
        try {
            opened.push_back({snapshot.name, open_snapshot(snapshot.path, store, console)});
        } catch (const Error& error) {
            console.warn(fmt::format("snapshot {} is left aside: {}", snapshot.name, error.what()));
        }
    }
    std::reverse(opened.begin(), opened.end());
    return opened;
}

pool::Region memory_for(const store::TensorStore& store, const std::vector<store::TensorStore*>& sources) {
    std::uint64_t bytes = 0;
    for (std::uint32_t object = 0; object < store.layout().objects().size(); ++object) {
        bytes = std::max(bytes, store.extent_bytes({object, 0}));
        for (const store::TensorStore* source : sources) bytes = std::max(bytes, source->extent_bytes({object, 0}));
    }
    store::check_memory_for_tiles(bytes, bytes);
    return pool::Region(bytes, 1, pool::Registration::none);
}

// Sources are the stores of scrub.snapshots. `memory` is as find_bytes() wants it.
void mend_tiles(Scrub& scrub, store::OpenStore& opened, const std::vector<store::TensorStore*>& sources,
                std::span<std::byte> memory) {
    store::TensorStore& store = opened.store();
    const std::vector<store::TileRecord> records = store::recover(opened.directory()).newest.value().tiles;
    const auto find = [&](store::TileId tile) {
        return find_bytes(opened.io(), store, tile, records[store.layout().tile_index(tile)], sources, memory);
    };
    for (const store::TileId tile : scrub.report.damaged) scrub.fates.push_back({tile, find(tile)});
    const auto found = [](const TileFate& fate) { return fate.found.source.has_value(); };
    if (opened.directory().shared() || store.kind() != store::StoreKind::durable ||
        !std::all_of(scrub.fates.begin(), scrub.fates.end(), found))
        return;
    for (const TileFate& fate : scrub.fates) {
        if (!find(fate.tile).source)
            throw Error(ExitCode::storage,
                        fmt::format("snapshot {} had the bytes of a damaged tile and has them no more: nothing was "
                                    "committed; check its drive (dmesg)",
                                    scrub.snapshots[*fate.found.source].name));
        write_blocking(opened.io(), store, fate.tile, memory);
    }
    const store::ClientState client = store.client();
    commit_blocking(opened.io(), store, client);
    for (const TileFate& fate : scrub.fates) read_blocking(opened.io(), store, fate.tile, memory);
    scrub.mended = true;
}

void mend_tiles(Scrub& scrub, store::OpenStore& opened) {
    std::vector<store::TensorStore*> sources;
    for (const Snapshot& snapshot : scrub.snapshots) sources.push_back(&snapshot.opened.store());
    auto region = std::make_unique<pool::Region>(memory_for(opened.store(), sources));
    try {
        mend_tiles(scrub, opened, sources, {region->data(), region->bytes()});
    } catch (...) {
        const auto stuck = [](const store::TensorStore* one) { return one->abandoned(); };
        if (stuck(&opened.store()) || std::any_of(sources.begin(), sources.end(), stuck))
            static_cast<void>(region.release());  // a device may still write into it
        throw;
    }
}

ordered_json json_of(const Scrub& scrub, const store::TensorStore& store) {
    ordered_json tiles = ordered_json::array();
    for (const TileFate& fate : scrub.fates) {
        tiles.push_back({{"object", store.layout().objects()[fate.tile.object].name},
                         {"tile", fate.tile.tile},
                         {"snapshot", nullptr}});
        if (fate.found.source) tiles.back()["snapshot"] = scrub.snapshots[*fate.found.source].name;
        if (!fate.found.problems.empty()) tiles.back()["problems"] = fate.found.problems;
    }
    return {{"path", scrub.path},          {"generation", *store.generation()},
            {"tiles", scrub.report.tiles}, {"bytes", scrub.report.bytes},
            {"locks", scrub.locks},        {"manifests", scrub.manifests},
            {"damaged", std::move(tiles)}, {"messages", scrub.report.damages},
            {"mended", scrub.mended},      {"whole", scrub.whole()},
            {"notes", store.notes()}};
}

std::string text_of(const Scrub& scrub, const store::TensorStore& store, const std::string& folder) {
    std::string text;
    for (const std::string& line : scrub.locks) text += line + "\n";
    for (const std::string& line : scrub.manifests) text += line + "\n";
    text += fmt::format("{}: {} tiles, {}: ", scrub.path, scrub.report.tiles, size_text(scrub.report.bytes));
    if (scrub.report.damaged_tiles == 0) return text + "all are as they were written\n";
    text += fmt::format("{} were damaged\n", scrub.report.damaged_tiles);
    for (const std::string& damage : scrub.report.damages) text += damage + "\n";
    for (const TileFate& fate : scrub.fates) {
        text += fmt::format(
            "object '{}', tile {}: {}\n", store.layout().objects()[fate.tile.object].name, fate.tile.tile,
            fate.found.source ? fmt::format("snapshot {} has its very bytes", scrub.snapshots[*fate.found.source].name)
                              : "no kept snapshot has its bytes");
        // One that cannot be read may have them all the same.
        if (!fate.found.source)
            for (const std::string& problem : fate.found.problems) text += "  " + problem + "\n";
    }
    if (scrub.mended)
        return text + fmt::format(
                          "all of them were written again and committed as generation {}, with the client state "
                          "as it was\n",
                          *store.generation());
    const std::string newest = scrub.snapshots.empty() ? "there is none of this model"
                                                       : fmt::format("the newest of this model is {}; verify it first",
                                                                     scrub.snapshots.front().name);
    return text + fmt::format(
                      "no tile was written, because not all can be mended. Go back to a kept snapshot in {} "
                      "({}), or put a copy of the directory in its place; where the generation before is still whole, "
                      "the next training goes on from it by itself\n",
                      folder, newest);
}

// To mend it; where that is refused because of damage, to say at least what is damaged and what is whole.
store::OpenStore open_to_scrub(const CkptRequest& request, Scrub& scrub, Console& console) {
    const std::vector<std::string> directories = directories_of(request.directory, request.also);
    const store::SharedRemedies remedies =
        remedies_of_scrub({.directories = directories, .snapshots = request.snapshot_folder});
    try {
        store::OpenStore opened = store::OpenStore::find(directories, store::Sharing::exclusive, remedies);
        scrub.manifests = repair_manifests(opened.directory(), aio::default_deadline, told_to(console));
        open_locked(opened, console, {.replaced = true});  // all is verified, and mended, before the next commit
        return opened;
    } catch (const Error& error) {
        if (error.code() != ExitCode::storage) throw;
        console.warn(error.what());
    }
    store::OpenStore opened = store::OpenStore::find(directories, store::Sharing::shared, remedies);
    open_locked(opened, console);
    return opened;
}

}  // namespace

CkptResult ckpt_scrub(const CkptRequest& request, Console& console) {
    refuse_if_in_use(request.directory, "the store can be scrubbed when that has ended: wait, or stop it");
    Scrub scrub;
    scrub.path = request.directory;
    scrub.locks = store::rebuild_locks(directories_of(request.directory, request.also), request.job);
    store::OpenStore opened = open_to_scrub(request, scrub, console);
    ProgressLine line(console, "scrub");
    scrub.report = verify(opened.io(), opened.store(),
                          {.progress = [&](std::uint64_t done, std::uint64_t total) { line.show(done, total); }});
    if (scrub.report.damaged_tiles > 0) {
        scrub.snapshots = open_snapshots(request, opened, console);
        mend_tiles(scrub, opened);
    }
    for (const std::string& note : opened.store().notes()) console.warn(note);
    return {.code = scrub.whole() ? ExitCode::ok : ExitCode::storage,
            .text = request.json ? dump(json_of(scrub, opened.store()))
                                 : text_of(scrub, opened.store(), snapshot_folder_of(request))};
}

}  // namespace penstock::trainer
