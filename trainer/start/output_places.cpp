#include "trainer/start/output_places.h"

#include "aio/profile.h"
#include "aio/words/error.h"
#include "swap/format/disk_place.h"
#include "swap/directory/store_look.h"
#include "zero_infinity/trace/trace_file.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace penstock::trainer {
namespace {

namespace fs = std::filesystem;
using store::DiskPlace;

// In run.directory (trainer/run/run_directory.h), and what a summary is written to first.
constexpr std::array run_files{"log.jsonl", "summary.json", "summary.json.tmp", "store.json"};

// Such as log.1.jsonl: a name that what was of another run gets.
bool is_set_aside(std::string_view name) {
    return (name.starts_with("log.") && name.ends_with(".jsonl")) ||
           (name.starts_with("summary.") && name.ends_with(".json"));
}

// What is the user's, and what messages call it.
struct Named {
    std::string path;
    std::string what;
};

[[noreturn]] void refuse(const std::string& problem) {
    throw Error(ExitCode::usage, problem);
}

std::vector<Named> inputs_of(const TrainConfig& config, const std::string& config_file) {
    return {{config_file, "the configuration"}, {config.train_file, "the data (data.train)"}};
}

std::vector<Named> directories_of(const TrainConfig& config) {
    std::vector<Named> found;
    for (const SettingDirectory& one : config.swap_directories) found.push_back({one.path, "the store's directory"});
    if (config.snapshots.planned) found.push_back({config.snapshots.folder, "the folder of snapshots (keep.folder)"});
    return found;
}

// What cannot be looked into is nobody's.
bool is_store(const std::string& directory) {
    try {
        return store::look_at_store(directory).has_value();
    } catch (const Error&) {
        return false;
    }
}

// The nearest directory around it, or it itself, that is a store's: the run's own, another run's, a snapshot.
std::optional<std::string> store_around(DiskPlace place) {
    do {
        if (place.is_there() && is_store(place.nearest().string())) return place.nearest().string();
    } while (place.go_up());
    return std::nullopt;
}

void check_run_directory(const TrainConfig& config) {
    const std::string& path = config.run_directory;
    const DiskPlace place(path);
    const auto refuse_place = [&](const std::string& store, bool same) {
        refuse(
            fmt::format("run.directory {} is {}the store's directory {}, where only the store's files may be; name a "
                        "directory outside of it for the log",
                        path, same ? "" : "in ", store));
    };
    for (const SettingDirectory& one : config.swap_directories) {
        const DiskPlace store(one.path);
        if (place.is_at_or_beneath(store)) refuse_place(one.path, place == store);
    }
    if (const auto store = store_around(place)) refuse_place(*store, place == DiskPlace(*store));
}

void check_run_files(const TrainConfig& config, const std::string& config_file) {
    for (const char* name : run_files) {
        const DiskPlace file((fs::path(config.run_directory) / name).string());
        for (const Named& input : inputs_of(config, config_file)) {
            if (file == DiskPlace(input.path))
                refuse(
                    fmt::format("run.directory {}: the run's {} would be written over {}, {}; name another "
                                "run.directory",
                                config.run_directory, name, input.what, input.path));
        }
        for (const Named& directory : directories_of(config)) {
            if (DiskPlace(directory.path).is_at_or_beneath(file))
                refuse(fmt::format("run.directory {}: {} is {}, where the run's {} goes; name another one",
                                   config.run_directory, directory.what, directory.path, name));
        }
    }
}

// Where the trace is written, at first or at last.
void check_trace_file(const TrainConfig& config, const std::string& config_file, const std::string& trace,
                      const std::string& path) {
    const DiskPlace place(path);
    const std::string says = path == trace ? fmt::format("--trace {}: that", trace)
                                           : fmt::format("--trace {}: {}, which is written first,", trace, path);
    std::vector<Named> taken = inputs_of(config, config_file);
    for (const char* name : run_files)
        taken.push_back({(fs::path(config.run_directory) / name).string(), fmt::format("the run's {}", name)});
    for (const Named& one : taken) {
        if (place == DiskPlace(one.path))
            refuse(fmt::format("{} is {}, {}; give another path", says, one.what, one.path));
    }
    DiskPlace folder = place;
    const std::string name = fs::path(path).filename().string();
    if (folder.go_up() && folder == DiskPlace(config.run_directory) && is_set_aside(name))
        refuse(fmt::format("{} is a name that the run gives a log or a summary put aside; give another path", says));
    if (name == aio::profile_name)
        refuse(fmt::format("{} is where the profile of a device is; give another path", says));
    if (const auto store = store_around(place))
        refuse(
            fmt::format("{} is in the store's directory {}, where only the store's files may be; give a path outside "
                        "of it",
                        says, *store));
}

}  // namespace

void check_outputs(const TrainConfig& config, const std::string& config_file, const std::string& trace_file) {
    check_run_directory(config);
    check_run_files(config, config_file);
    if (trace_file.empty()) return;
    zero::refuse_in_store(trace_file, "--trace", config.session.swap_directories);
    for (const std::string& path : {trace_file, zero::unfinished_trace(trace_file)})
        check_trace_file(config, config_file, trace_file, path);
}

}  // namespace penstock::trainer
