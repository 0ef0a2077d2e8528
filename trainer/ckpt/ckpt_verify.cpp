// Is every byte of a generation the one that was written?
#include "aio/words/error.h"
#include "swap/store/verify.h"

#include "trainer/ckpt/ckpt.h"
#include "trainer/ckpt/ckpt_store.h"
#include "trainer/cli/ckpt_words.h"
#include "trainer/cli/console.h"
#include "trainer/cli/progress_line.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace penstock::trainer {
namespace {

using nlohmann::ordered_json;

std::string remedy_while_in_use(const CkptRequest& request) {
    return fmt::format(
        "the training verifies each tile that it reads. Wait until it ends or stop it, or verify a kept "
        "snapshot: penstock ckpt verify {} NAME",
        request.directory);
}

std::string json_text(const std::string& path, const store::TensorStore& store, const store::VerifyReport& report,
                      double seconds) {
    ordered_json damaged = ordered_json::array();
    for (const store::TileId tile : report.damaged) {
        const store::TileLocation place = store.location(tile);
        damaged.push_back({{"object", store.layout().objects()[tile.object].name},
                           {"tile", tile.tile},
                           {"path", place.path},
                           {"offset_bytes", place.offset_bytes}});
    }
    return dump({{"path", path},
                 {"generation", *store.generation()},
                 {"step", json_of_step(store.client())},
                 {"tiles", report.tiles},
                 {"bytes", report.bytes},
                 {"seconds", seconds},
                 {"gb_per_s", seconds > 0 ? static_cast<double>(report.bytes) / seconds / 1e9 : 0},
                 {"damaged", std::move(damaged)},
                 {"messages", report.damages},
                 {"notes", store.notes()}});
}

std::string human_text(const std::string& path, const store::TensorStore& store, const store::VerifyReport& report,
                       double seconds) {
    std::string text = fmt::format("{}: generation {}: {} tiles, {} in {:.2f} s, {:.2f} GB/s: ", path,
                                   *store.generation(), report.tiles, size_text(report.bytes), seconds,
                                   seconds > 0 ? static_cast<double>(report.bytes) / seconds / 1e9 : 0);
    if (report.damaged_tiles == 0) return text + "all are as they were written\n";
    text += fmt::format("{} are damaged\n", report.damaged_tiles);
    for (const std::string& damage : report.damages) text += damage + "\n";
    for (std::size_t i = report.damages.size(); i < report.damaged.size(); ++i) {
        const store::TileId tile = report.damaged[i];
        text += fmt::format("object '{}', tile {}\n", store.layout().objects()[tile.object].name, tile.tile);
    }
    return text;
}

}  // namespace

CkptResult ckpt_verify(const CkptRequest& request, Console& console) {
    const std::string path = request.name.empty() ? request.directory : snapshot_path(request);
    refuse_if_in_use(path, remedy_while_in_use(request));
    const store::OpenStore opened = request.name.empty() ? open_store(request, console) : open_snapshot(path, console);
    ProgressLine line(console, "verify");
    const store::VerifyReport report =
        verify(opened.io(), opened.store(),
               {.progress = [&](std::uint64_t done, std::uint64_t total) { line.show(done, total); }});
    const double seconds = line.seconds();
    const store::TensorStore& store = opened.store();
    for (const std::string& note : store.notes()) console.warn(note);
    return {.code = report.damaged_tiles == 0 ? ExitCode::ok : ExitCode::storage,
            .text = request.json ? json_text(path, store, report, seconds) : human_text(path, store, report, seconds)};
}

}  // namespace penstock::trainer
