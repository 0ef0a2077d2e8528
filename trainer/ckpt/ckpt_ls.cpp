// What lies in a directory, told from its manifests alone.
#include "aio/words/error.h"
#include "trainer/ckpt/ckpt.h"
#include "trainer/ckpt/ckpt_store.h"
#include "trainer/ckpt/snapshot_folder.h"
#include "trainer/cli/ckpt_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <numeric>

namespace penstock::trainer {
namespace {

using nlohmann::ordered_json;

std::uint64_t object_bytes(const store::Manifest& manifest) {
    return std::accumulate(manifest.objects.begin(), manifest.objects.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const store::ObjectSpec& object) { return sum + object.bytes; });
}

std::uint64_t reserved_bytes(const store::Manifest& manifest) {
    const store::Layout layout(manifest.objects, manifest.geometry);
    std::uint64_t bytes = 4 * manifest_capacity(layout);
    if (manifest.hashed_as == store::HashedAs::origin) return bytes;  // its blocks are or were the origin's
    for (std::uint32_t device = 0; device < layout.device_count(); ++device) bytes += layout.device_bytes(device);
    return bytes;
}

std::string step_text(const store::ClientState& client) {
    const auto step = step_of(client);
    return step ? std::to_string(*step) : "-";
}

// Copies of manifests that a running training is just writing look unfinished: no problem then.
std::vector<std::string> problems_of(const store::StoreLook& look) {
    return look.in_use ? std::vector<std::string>{} : look.problems();
}

ordered_json json_of_store(const store::StoreLook& look) {
    ordered_json object = {{"path", look.path},
                           {"uuid", store::to_string(look.lock.uuid)},
                           {"job", look.lock.job},
                           {"in_use_by", nullptr}};
    if (look.in_use)
        object["in_use_by"] = {{"pid", look.lock.pid}, {"host", look.lock.host}, {"since", look.lock.since}};
    object["problems"] = problems_of(look);
    object["generation"] = nullptr;
    if (!look.recovery.newest) return object;
    const store::Manifest& manifest = *look.recovery.newest;
    object["generation"] = manifest.generation;
    object["step"] = json_of_step(manifest.client);
    object["time_s"] = manifest.time_s;
    object["bytes"] = object_bytes(manifest);
    object["reserved_bytes"] = reserved_bytes(manifest);
    object["objects"] = manifest.objects.size();
    object["devices"] = manifest.geometry.device_count();
    return object;
}

ordered_json json_of_snapshots(const store::ListedSnapshot& snapshot) {
    ordered_json object = {{"name", snapshot.name},
                           {"path", snapshot.path},
                           {"complete", snapshot.manifest.has_value()},
                           {"problem", snapshot.problem},
                           {"disk_bytes", snapshot.disk_bytes}};
    if (!snapshot.manifest) return object;
    object["generation"] = snapshot.manifest->origin->generation;
    object["step"] = json_of_step(snapshot.manifest->client);
    object["time_s"] = snapshot.manifest->time_s;
    object["bytes"] = object_bytes(*snapshot.manifest);
    object["origin"] = store::to_string(snapshot.manifest->origin->store);
    object["shares_blocks"] = snapshot.manifest->hashed_as == store::HashedAs::origin;
    return object;
}

std::string text_of_store(const store::StoreLook& look) {
    std::string text;
    if (look.recovery.newest) {
        const store::Manifest& manifest = *look.recovery.newest;
        text = fmt::format("{}: generation {}, step {}, committed {}\n", look.path, manifest.generation,
                           step_text(manifest.client), time_text(manifest.time_s));
        text += fmt::format("  {} in {} objects on {} device{}, {} reserved\n", size_text(object_bytes(manifest)),
                            manifest.objects.size(), manifest.geometry.device_count(),
                            manifest.geometry.device_count() == 1 ? "" : "s", size_text(reserved_bytes(manifest)));
        if (manifest.origin) text += fmt::format("  a snapshot of {}\n", origin_text(manifest));
    } else {
        text = fmt::format("{}: {}\n", look.path,
                           look.recovery.never_committed() ? "nothing was committed yet" : "no manifest is whole");
    }
    text += look.holders.empty() ? fmt::format("  not in use; job '{}'\n", look.lock.job)
                                 : fmt::format("  in use by {}\n", look.holder_text());
    for (const std::string& problem : problems_of(look)) text += "  " + problem + "\n";
    return text;
}

std::string text_of_snapshots(const std::string& folder, const std::vector<store::ListedSnapshot>& snapshots) {
    if (snapshots.empty()) return fmt::format("no kept snapshots in {}\n", folder);
    std::vector<std::vector<std::string>> rows = {{"NAME", "STEP", "GENERATION", "KEPT", "BYTES", "STATE"}};
    for (const store::ListedSnapshot& snapshot : snapshots) {
        if (!snapshot.manifest) {
            rows.push_back({snapshot.name, "-", "-", "-", size_text(snapshot.disk_bytes), snapshot.problem});
            continue;
        }
        rows.push_back({snapshot.name, step_text(snapshot.manifest->client),
                        std::to_string(snapshot.manifest->origin->generation), time_text(snapshot.manifest->time_s),
                        size_text(object_bytes(*snapshot.manifest)), "complete"});
    }
    return fmt::format("kept snapshots in {}:\n{}", folder, table_text(rows));
}

}  // namespace

CkptResult ckpt_ls(const CkptRequest& request) {
    const std::optional<store::StoreLook> look = look_at_store(request.directory);
    CkptRequest used = request;
    // A folder of snapshots, without a store of its own, is listed as such; so is what is left of a store.
    if (!look && request.snapshot_folder.empty() && list_parts(snapshot_folder_of(request)).empty())
        used.snapshot_folder = request.directory;
    const std::string folder = snapshot_folder_of(used);
    const std::vector<store::ListedSnapshot> snapshots = list_parts(folder);
    if (!look && snapshots.empty())
        throw Error(ExitCode::storage,
                    fmt::format("{} holds neither a store nor kept snapshots; check the path", request.directory));
    if (!request.json) return {.text = (look ? text_of_store(*look) : "") + text_of_snapshots(folder, snapshots)};
    ordered_json object = {{"store", look ? json_of_store(*look) : ordered_json(nullptr)},
                           {"snapshot_folder", folder},
                           {"kept", ordered_json::array()}};
    for (const store::ListedSnapshot& snapshot : snapshots) object["kept"].push_back(json_of_snapshots(snapshot));
    return {.text = dump(object)};
}

}  // namespace penstock::trainer
