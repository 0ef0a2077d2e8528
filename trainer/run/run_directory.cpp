#include "trainer/run/run_directory.h"

#include "aio/words/error.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/directory_names.h"
#include "swap/directory/recovery.h"
#include "swap/directory/store_look.h"
#include "swap/format/disk_place.h"
#include "trainer/ckpt/ckpt_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

namespace penstock::trainer {
namespace {

namespace fs = std::filesystem;

// Also of what is not there.
std::string absolute(const std::string& path) {
    std::error_code unknown;
    const fs::path found = fs::weakly_canonical(fs::absolute(path, unknown), unknown);
    return unknown ? path : found.string();
}

// As a store's own opening sees it: data beside manifests that are missing was committed once.
bool has_committed(const store::StoreLook& look, int directory_fd) {
    const auto has = [&](const char* name) { return store::has_name(directory_fd, look.path, name); };
    if (look.lock.role && look.lock.role->device > 0) return true;
    if (has(store::data_file_name) && !(has(store::manifest_file_names[0]) && has(store::manifest_file_names[1])))
        return true;
    return !look.recovery.never_committed();
}

}  // namespace

StoreSeen see_store(const std::string& directory) {
    const store::Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) return {.empty = errno == ENOENT};
    StoreSeen seen{.empty = store::has_no_store(fd.get())};
    const auto look = store::look_at_store(fd.get(), directory);
    if (!look) return seen;
    seen.uuid = look->lock.uuid;
    seen.committed = has_committed(*look, fd.get());
    const std::optional<store::Manifest>& newest = look->recovery.newest;
    if (newest && newest->origin) seen.origin = newest->origin->store;
    return seen;
}

RunDirectory::RunDirectory(const std::string& path, const std::string& store_directory)
    : path_(path), store_directory_(store_directory) {
    try {
        make();
        lock();
        owner_ = read_owner();
        refuse_if_of_another();
    } catch (...) {
        withdraw();
        throw;
    }
}

RunDirectory::~RunDirectory() {
    if (!adopted_) withdraw();
}

void RunDirectory::make() {
    std::error_code error;
    for (fs::path missing = path_; !missing.empty() && !fs::exists(missing, error) && !error;
         missing = missing.parent_path())
        made_directories_.push_back(missing.string());
    fs::create_directories(path_, error);
    if (error)
        throw Error(ExitCode::usage, fmt::format("run.directory: cannot make {}: {}; correct the path, or move {} away",
                                                 path_, error.message(), path_));
}

// rmdir() itself refuses what is not empty. Whoever waits for the file's lock sees that it has lost its name.
void RunDirectory::withdraw() noexcept {
    if (made_file_ && file_.has_its_name()) ::unlink(file_.path().c_str());
    for (const std::string& directory : made_directories_) ::rmdir(directory.c_str());
}

std::string RunDirectory::path(const char* name) const {
    return (fs::path(path_) / name).string();
}

// Another that was refused may have removed the file meanwhile.
void RunDirectory::lock() {
    const std::string file = path("store.json");
    do {
        std::error_code unknown;
        const bool missing = fs::symlink_status(file, unknown).type() == fs::file_type::not_found;
        file_ = PlainFile(file, PlainFile::Mode::own);
        if (!file_.try_lock()) refuse_locked();
        made_file_ = missing;
    } while (!file_.has_its_name());
}

// The same run started twice is better told about its store: by the process that has it.
void RunDirectory::refuse_locked() const {
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
    const std::optional<store::StoreUuid> store = store::parse_uuid(word("store"));
    return store ? std::optional(Owner{.store = *store, .directory = word("directory")}) : std::nullopt;
}

// Also where the store is gone.
bool RunDirectory::is_of_this_place() const {
    return owner_ && store::DiskPlace(owner_->directory) == store::DiskPlace(store_directory_);
}

std::optional<store::StoreUuid> RunDirectory::store_of_this_place() const {
    return is_of_this_place() ? std::optional(owner_->store) : std::nullopt;
}

bool RunDirectory::may_be_of(const store::StoreUuid& store, LogKin kin) const {
    return !owner_ || owner_->store == store || (is_of_this_place() && kin == LogKin::same);
}

// Of another: its store is somewhere else, and still there. A store that was moved is this run's, one that was copied
// is not.
void RunDirectory::refuse_if_of_another() const {
    if (!owner_ || is_of_this_place()) return;
    if (!fs::exists(log()) && !fs::exists(summary())) return;
    if (see_store(store_directory_).origin) return;  // no store to train in: the session says so
    const StoreSeen there = see_store(owner_->directory);
    if (there.empty || there.uuid != owner_->store) return;
    throw Error(ExitCode::usage,
                fmt::format("run.directory {} has the log of the run whose store is {}, and this run's "
                            "store is {}; give this run another run.directory",
                            path_, owner_->directory, store_directory_));
}

std::vector<std::string> RunDirectory::adopt(const store::StoreUuid& store, Start start, LogKin kin,
                                             const std::optional<store::StoreUuid>& origin) {
    adopted_ = true;
    const Owner now{.store = store, .directory = absolute(store_directory_)};
    const bool of_origin = owner_ && origin && owner_->store == *origin;
    const bool known = (may_be_of(store, kin) || of_origin) && kin != LogKin::other;
    std::vector<std::string> said;
    if (start == Start::begun || !known) {
        // A summary says itself whose it is: this one's stays.
        const bool own_summary = start == Start::resumed && is_of(store);
        for (const std::string& file : own_summary ? std::vector{log()} : std::vector{log(), summary()}) {
            if (const std::string kept = set_aside(file); !kept.empty())
                said.push_back(fmt::format("{} was of another run; it is {} now", file, kept));
        }
    }
    if (owner_ != now) {
        const std::string text =
            nlohmann::ordered_json{{"store", store::to_string(now.store)}, {"directory", now.directory}}.dump(
                -1, ' ', false, nlohmann::json::error_handler_t::replace) +
            "\n";
        file_.truncate(0);
        file_.write_at(0, std::as_bytes(std::span(text)));
        owner_ = now;
    }
    return said;
}

}  // namespace penstock::trainer
