#include "trainer/run/run_directory.h"

#include "aio/words/error.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/directory_names.h"
#include "swap/directory/store_look.h"
#include "trainer/ckpt/ckpt_store.h"
#include "trainer/run/run_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

namespace penstock::trainer {
namespace {

namespace fs = std::filesystem;

std::string made(const std::string& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error)
        throw Error(ExitCode::usage, fmt::format("run.directory: cannot make {}: {}; correct the path, or move {} away",
                                                 path, error.message(), path));
    return path;
}

bool same_place(const std::string& one, const std::string& other) {
    std::error_code missing;
    return fs::equivalent(one, other, missing) && !missing;
}

std::string absolute(const std::string& path) {
    std::error_code unknown;
    const fs::path found = fs::weakly_canonical(path, unknown);
    return unknown ? path : found.string();
}

bool has_nothing(int directory_fd) {
    std::vector<std::string> names;
    return store::list_names(directory_fd, names) == 0 &&
           std::all_of(names.begin(), names.end(), store::may_stand_beside);
}

}  // namespace

StoreSeen see_store(const std::string& directory) {
    const store::Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) return {.empty = errno == ENOENT};
    const auto look = store::look_at_store(fd.get(), directory);
    if (!look) return {.empty = has_nothing(fd.get())};
    const store::Recovery& found = look->recovery;
    StoreSeen seen{.uuid = look->lock.uuid, .committed = !found.never_committed()};
    if (found.newest && found.newest->origin) seen.origin = found.newest->origin->store;
    return seen;
}

RunDirectory::RunDirectory(const std::string& path, const std::string& store_directory)
    : path_(made(path)), store_directory_(store_directory), file_(this->path("store.json"), PlainFile::Mode::own) {
    lock();
    owner_ = read_owner();
    refuse_if_of_another();
}

std::string RunDirectory::path(const char* name) const {
    return (fs::path(path_) / name).string();
}

void RunDirectory::lock() {
    if (file_.try_lock()) return;
    // The same run started twice is better told about its store: by the process that has it.
    if (see_store(store_directory_).uuid) refuse_if_in_use(store_directory_, "wait until it ends or stop it");
    throw Error(ExitCode::storage, fmt::format("run.directory {}: another process writes its log there ({} is locked); "
                                               "give each run a run.directory of its own",
                                               path_, file_.path()));
}

std::optional<RunDirectory::Owner> RunDirectory::read_owner() const {
    std::string text(4096, ' ');
    text.resize(file_.read_at(0, std::as_writable_bytes(std::span(text))));
    const auto object = nlohmann::json::parse(text, nullptr, false);
    if (!object.is_object()) return std::nullopt;
    const auto word = [&](const char* key) {
        const auto found = object.find(key);
        return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    return Owner{.store = word("store"), .directory = word("directory")};
}

// Of another: its store is somewhere else, and still there. A store that was moved is this run's, one that was copied
// is not.
void RunDirectory::refuse_if_of_another() const {
    if (!owner_ || same_place(owner_->directory, store_directory_)) return;
    if (!fs::exists(log()) && !fs::exists(summary())) return;
    if (see_store(store_directory_).origin) return;  // no store to train in: the session says so
    const auto there = see_store(owner_->directory).uuid;
    if (!there || store::to_string(*there) != owner_->store) return;
    throw Error(ExitCode::usage,
                fmt::format("run.directory {} has the log of the run whose store is {}, and this run's "
                            "store is {}; give this run another run.directory",
                            path_, owner_->directory, store_directory_));
}

std::vector<std::string> RunDirectory::adopt(const store::StoreUuid& store, Start start,
                                             const std::optional<store::StoreUuid>& origin) {
    const Owner now{.store = store::to_string(store), .directory = absolute(store_directory_)};
    const bool known = !owner_ || owner_->store == now.store || (origin && owner_->store == store::to_string(*origin));
    std::vector<std::string> said;
    if (start == Start::begun || !known) {
        for (const std::string& file : {log(), summary()}) {
            if (const std::string kept = set_aside(file); !kept.empty())
                said.push_back(fmt::format("{} was of another run; it is {} now", file, kept));
        }
    }
    if (owner_ != now) {
        const std::string text = nlohmann::ordered_json{{"store", now.store}, {"directory", now.directory}}.dump(
                                     -1, ' ', false, nlohmann::json::error_handler_t::replace) +
                                 "\n";
        file_.truncate(0);
        file_.write_at(0, std::as_bytes(std::span(text)));
        owner_ = now;
    }
    return said;
}

}  // namespace penstock::trainer
