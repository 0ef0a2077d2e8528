// TensorStore::open().
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "aio/words/size_limit.h"
#include "swap/directory/device_roles.h"
#include "swap/directory/directory_names.h"
#include "swap/directory/recovery.h"
#include "swap/directory/remedy.h"
#include "swap/store/blocking.h"
#include "swap/store/store_state.h"
#include "swap/store/tensor_store.h"
#include "swap/store/verify.h"
#include "swap/store/zero_fill.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

namespace penstock::store {
namespace {

bool is_shared(const Directories& directories) {
    return std::any_of(directories.begin(), directories.end(), [](const auto* one) { return one->shared(); });
}

// What is wrong with a file of the store, or nothing. What cannot be looked at may be one: opening it says more.
std::string absence(const StoreDirectory& directory, const char* name) {
    struct stat status {};
    if (::fstatat(directory.fd(), name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? fmt::format("there is no file '{}'", name) : std::string();
    if (S_ISREG(status.st_mode)) return {};
    if (S_ISLNK(status.st_mode))
        return fmt::format("'{}' is a symbolic link, and those are not followed: put the file itself in its place",
                           name);
    return fmt::format("'{}' is no file", name);
}

void refuse_missing_data(const Directories& directories, const Remedies& remedies) {
    for (const StoreDirectory* directory : directories) {
        const std::string problem = absence(*directory, data_file_name);
        if (problem.empty()) continue;
        throw Error(ExitCode::storage,
                    fmt::format("{}: {}. It holds the tiles: put it back, if it was moved. {}.", directory->path(),
                                problem, remedies.of_data(directories.front()->path())));
    }
}

// A further directory that is of no store yet, in the place of one that is lost.
void take_in(StoreDirectory& directory, const DeviceRole& role, std::vector<std::string>& notes) {
    if (directory.role() || directory.content() != DirectoryContent::nothing) return;
    directory.assign(role);
    notes.push_back(fmt::format("{} was of no store yet and is device {} of {} of this one now.", directory.path(),
                                role.device, role.device_count));
}

// Durably, like a missing manifest file. What is no file goes aside, as a lock does; not a link that leads to one.
void make_missing_data(const StoreDirectory& directory, std::vector<std::string>& notes) {
    constexpr auto aside_name = "data.damaged";
    const std::string path = fmt::format("{}/{}", directory.path(), data_file_name);
    const bool in_the_way = has_name(directory.fd(), directory.path(), data_file_name);
    struct stat status {};
    const bool followed = ::fstatat(directory.fd(), data_file_name, &status, 0) == 0;
    if (in_the_way && (followed ? S_ISREG(status.st_mode) : errno != ENOENT && errno != ELOOP)) return;
    if (in_the_way && ::renameat(directory.fd(), data_file_name, directory.fd(), aside_name) != 0)
        throw Error(ExitCode::storage, fmt::format("{} is no file and cannot be renamed to {}: {}; move it away.", path,
                                                   aside_name, aio::errno_text(errno)));
    const aio::File made(directory.fd(), data_file_name, path,
                         {.mode = aio::FileMode::create, .caching = aio::Caching::buffered});
    directory.sync();
    notes.push_back(fmt::format("{} {}; an empty one is in its place.", path,
                                in_the_way ? fmt::format("was no file and is {} now", aside_name) : "was missing"));
}

// Only where the manifests say that these directories are the store's, and that it is one to go on with.
void make_what_is_missing(const Directories& directories, std::vector<std::string>& notes) {
    const std::optional<Manifest> newest = directories.front()->look().manifests.newest;
    if (!newest || newest->origin || newest->geometry.device_count() != directories.size()) return;
    for (std::size_t i = 0; i < directories.size(); ++i) {
        const DeviceRole role = role_of(directories, i);
        if (i > 0) take_in(*directories[i], role, notes);
        if (directories[i]->role() == role) make_missing_data(*directories[i], notes);
    }
}

void refuse_other_objects(const std::vector<ObjectSpec>& wanted, const std::vector<ObjectSpec>& found,
                          const std::string& path) {
    if (wanted.empty() || wanted == found) return;
    const auto [mine, there] = std::mismatch(wanted.begin(), wanted.end(), found.begin(), found.end());
    const auto text_of = [](auto spec, auto end) {
        if (spec == end) return std::string("none");
        return fmt::format("'{}' of {} bytes in tiles of {}", spec->name, spec->bytes, spec->tile_bytes);
    };
    throw Error(ExitCode::usage,
                fmt::format("the store in {} has other objects than are given: object {} is {} there and {} here; "
                            "give the ones it was created with, or none to take it as it is",
                            path, mine - wanted.begin(), text_of(there, found.end()), text_of(mine, wanted.end())));
}

void refuse_missing_manifests(const StoreDirectory& directory, const Remedies& remedies) {
    const auto has = [&](const char* name) { return has_name(directory.fd(), directory.path(), name); };
    if (!has(data_file_name) && std::none_of(manifest_file_names.begin(), manifest_file_names.end(), has))
        throw Error(ExitCode::storage,
                    fmt::format("{}: nothing is committed here: but for the lock, the store has no file. {}.",
                                directory.path(), remedies.of_nothing(directory.path())));
    std::vector<std::string> problems;
    for (const char* name : manifest_file_names) {
        if (std::string problem = absence(directory, name); !problem.empty()) problems.push_back(std::move(problem));
    }
    if (problems.empty()) return;
    throw Error(ExitCode::storage,
                fmt::format("{}: {}. It says what the data is. {}.", directory.path(), fmt::join(problems, " and "),
                            problems.size() == 1 ? remedies.of_manifest(directory.path())
                                                 : remedies.of_loss(directory.path())));
}

Recovery recover_newest(const StoreDirectory& directory, Recovery* found, const Remedies& remedies) {
    Recovery recovery = found != nullptr && found->settled ? std::move(*found) : recover(directory);
    const std::vector<std::string> unread =
        recovery.unread() && !recovery.newest ? recovery.problems(directory.path()) : recovery.hidden(directory.path());
    if (!unread.empty()) {
        // Passing causes (descriptors, memory, a link that dropped) go by themselves.
        throw Error(ExitCode::storage,
                    fmt::format("{}: a manifest could not be read, and the newest generation may be in it. {}. Nothing "
                                "was changed: try again when the cause is gone (dmesg, ulimit -n). {}.",
                                directory.path(), fmt::join(unread, "; "), remedies.of_manifest(directory.path())));
    }
    if (recovery.newest) return recovery;
    const std::vector<std::string> problems = recovery.problems(directory.path());
    refuse_lock_of_another(directory.fd(), directory.path(), directory.uuid(), remedies);
    if (problems.empty())
        throw Error(ExitCode::storage, fmt::format("{}: nothing is committed here. {}.", directory.path(),
                                                   remedies.of_nothing(directory.path())));
    throw Error(ExitCode::storage,
                fmt::format("{}: no manifest is whole, so the store cannot be opened. {}. {}.", directory.path(),
                            fmt::join(problems, "; "), remedies.of_loss(directory.path())));
}

bool to_be_erased(const ManifestCopy& copy) {
    return copy.no_good() || copy.state == ManifestCopy::State::disproved;
}

// A copy that is no good now may be whole again later, when the slots it names were overwritten: what is broken, unread
// or disproved where the next generation comes is erased before anything is written.
void prepare_next_commit(aio::Io& io, StoreFiles& files, const Layout& layout, std::uint64_t generation,
                         const Recovery& recovery) {
    fit_manifests(files, layout);
    const std::size_t next = (generation + 1) % 2;
    const std::uint64_t place_bytes = manifest_capacity(layout);
    std::vector<ZeroRange> broken;
    for (std::uint64_t copy = 0; copy < 2; ++copy) {
        const ManifestCopy& found = recovery.copies[next][copy];
        if (!to_be_erased(found)) continue;
        broken.push_back({.file = &files.manifests[next], .offset_bytes = copy * place_bytes, .bytes = place_bytes});
    }
    if (!broken.empty()) fill_files(io, files, broken, {});
}

// Beside a whole one, so that a cut within the write costs nothing.
std::uint32_t copy_to_write(const Recovery& recovery, std::uint64_t generation) {
    const ManifestCopy& first = recovery.copies[generation % 2][0];
    return first.state == ManifestCopy::State::whole && first.generation == generation ? 1 : 0;
}

// What was cut off may be of slots that nobody needs: zeros take its place, and all tiles are verified then. A reader
// changes nothing.
bool extend_cut_data(StoreFiles& files, const Layout& layout, Sharing sharing, const std::string& remedy,
                     std::vector<std::string>& notes) {
    bool extended = false;
    for (std::uint32_t device = 0; device < layout.device_count(); ++device) {
        const aio::File& file = files.data[device];
        const std::uint64_t bytes = file.bytes();
        if (bytes >= layout.device_bytes(device)) continue;
        const aio::NoSizeSignal quiet;
        std::string cut = fmt::format("{} ends at offset {}, but the store's tiles reach to {}: it was cut.",
                                      file.path(), bytes, layout.device_bytes(device));
        if (sharing == Sharing::shared ||
            ::ftruncate(file.fd(), static_cast<off_t>(layout.device_bytes(device))) != 0) {
            throw Error(ExitCode::storage, fmt::format("{} {}.", cut, remedy));
        }
        notes.push_back(cut + " Zeros were put there.");
        extended = true;
    }
    return extended;
}

void check_alignment(const StoreFiles& files, const Layout& layout) {
    if (files.granule_bytes() > layout.granule_bytes()) {
        throw Error(ExitCode::storage,
                    fmt::format("{}: the device asks for an alignment of {} bytes, but the store was made with {}; "
                                "move the directory to a device like the one it came from.",
                                files.data.front().path(), files.granule_bytes(), layout.granule_bytes()));
    }
}

// Counting on from numbers that no program has reached would begin again at 0, and older manifests would win.
void check_numbers(const Manifest& manifest, const StoreDirectory& directory, const Remedies& remedies) {
    constexpr std::uint64_t most = 1ULL << 63;
    if (manifest.generation < most && manifest.incarnation < most) return;
    throw Error(
        ExitCode::storage,
        fmt::format("{}: the newest manifest is of generation {} and incarnation {}, but no store gets to {}: it "
                    "was not written by this program. {}.",
                    directory.path(), manifest.generation, manifest.incarnation, most,
                    remedies.of_loss(directory.path())));
}

// Higher than the last one's, and by the clock also higher than that of a life whose manifests cannot be read now:
// should they be readable again, what this life commits under the same generation's number counts.
std::uint64_t next_incarnation(std::uint64_t last) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    return std::max(last + 1, static_cast<std::uint64_t>(now_ns));
}

// Lends the files to a store that only reads: which generation will be gone on from is not known yet.
VerifyReport verify_generation(aio::Io& io, StoreFiles& files, const Manifest& manifest, const OpenOptions& options,
                               VerifyScope scope) {
    auto state = std::make_unique<StoreState>(io, std::move(files), manifest, manifest.generation,
                                              StoreState::Access::read_only);
    state->remedies = options.remedies;
    StoreFiles& lent = state->files;
    TensorStore store(std::move(state));
    VerifyReport report = verify(io, store, {.scope = scope, .progress = options.progress});
    files = std::move(lent);
    return report;
}

// A tile that the device has an error for need not be wrong: nothing is given up for it.
void refuse_unread(const VerifyReport& report, const StoreDirectory& directory, std::uint64_t generation) {
    if (report.unread_tiles == 0) return;
    throw Error(ExitCode::storage,
                fmt::format("{}: {} of {} verified tiles of generation {} could not be read, e.g. {} Nothing was "
                            "changed.",
                            directory.path(), report.unread_tiles, report.tiles, generation, report.damages.front()));
}

// Generation g-1 is whole from the commit of g to the first write after it, and nothing has been written yet: so g can
// be given up as long as all of g-1 is right.
void verify_newest(aio::Io& io, StoreFiles& files, const Directories& directories, const OpenOptions& options,
                   VerifyScope scope, Recovery& recovery, std::vector<std::string>& notes) {
    const StoreDirectory& first = *directories.front();
    const std::uint64_t generation = recovery.newest->generation;
    if (scope == VerifyScope::none) return;
    const VerifyReport report = verify_generation(io, files, *recovery.newest, options, scope);
    refuse_unread(report, first, generation);
    if (report.damaged_tiles == 0) return;
    const bool shared = is_shared(directories);
    const bool back = !shared && !options.generation && recovery.previous &&
                      verify_generation(io, files, *recovery.previous, options, VerifyScope::all).damaged_tiles == 0;
    const std::string damage = fmt::format("{} of {} verified tiles of generation {} are damaged, e.g. {}",
                                           report.damaged_tiles, report.tiles, generation, report.damages.front());
    if (!back) {
        throw Error(ExitCode::storage, fmt::format("{}: {} The generation before is {}.", first.path(), damage,
                                                   shared               ? "not looked at in a store that is only read"
                                                   : options.generation ? "not what was asked for"
                                                                        : "not whole either"));
    }
    recovery.use_previous();
    notes.push_back(fmt::format("{} Generation {} is whole and used instead: one commit is lost. Watch the drive.",
                                damage, generation - 1));
}

// Whoever asks for the one before knows that it is whole, or has it verified.
void go_to(std::optional<std::uint64_t> wanted, Recovery& recovery, const StoreDirectory& first,
           std::vector<std::string>& notes) {
    const std::uint64_t newest = recovery.newest->generation;
    if (!wanted || *wanted == newest) return;
    if (!recovery.previous || recovery.previous->generation != *wanted)
        throw Error(ExitCode::storage,
                    fmt::format("{}: generation {} is to be gone on from, but there are {}{}. Nothing was changed.",
                                first.path(), *wanted, newest,
                                recovery.previous ? fmt::format(" and {}", recovery.previous->generation) : ""));
    recovery.use_previous();
    notes.push_back(fmt::format("Generation {} is gone on from, and {} given up.", *wanted, newest));
}

// A copy that is whole counts in a file of any length.
void note_lengths(const StoreFiles& files, const Layout& layout, std::vector<std::string>& notes) {
    for (const aio::File& file : files.manifests) {
        if (file.bytes() == 2 * manifest_capacity(layout)) continue;
        notes.push_back(fmt::format("{} has {} bytes and not {}: it was cut or grew; what of it is whole is used.",
                                    file.path(), file.bytes(), 2 * manifest_capacity(layout)));
    }
}

std::string note_of_doubt(const StoreDirectory& directory, std::uint64_t generation) {
    return fmt::format(
        "{}/{} says nothing of generation {}, which came before: it was damaged, lost or put back from "
        "elsewhere. Generation {} is used; what was committed after it, if anything was, is lost.",
        directory.path(), manifest_file_names[(generation - 1) % manifest_file_names.size()], generation - 1,
        generation);
}

}  // namespace

bool TensorStore::previous_is_right(aio::Io& io, const Directories& directories, const OpenOptions& options) {
    StoreFiles files = StoreFiles::find(directories, options.caching, io.deadline(), options.waiting);
    const Recovery recovery = recover(*directories.front());
    if (!recovery.previous) return false;
    const VerifyReport report = verify_generation(io, files, *recovery.previous, options, VerifyScope::all);
    refuse_unread(report, *directories.front(), recovery.previous->generation);
    return report.damaged_tiles == 0;
}

std::unique_ptr<TensorStore> TensorStore::open(aio::Io& io, const Directories& directories,
                                               const OpenOptions& options) {
    check_directories(directories);
    const Remedies& remedies = *options.remedies;
    const bool shared = is_shared(directories);
    const StoreDirectory& first = *directories.front();
    std::vector<std::string> notes;
    if (options.replaced && !shared) make_what_is_missing(directories, notes);
    check_roles(directories, remedies);
    refuse_missing_manifests(first, remedies);
    refuse_missing_data(directories, remedies);
    // Held before anything is read that is not settled: what a process that was killed had under way has landed.
    StoreFiles files = StoreFiles::find(directories, options.caching, io.deadline(), options.waiting);
    Recovery recovery = recover_newest(first, options.found, remedies);
    check_numbers(*recovery.newest, first, remedies);
    check_device_count(*recovery.newest, directories);
    refuse_other_objects(options.objects, recovery.newest->objects, first.path());
    const Layout layout(recovery.newest->objects, recovery.newest->geometry);
    check_alignment(files, layout);
    if (!shared) check_size_limit(files, layout);
    note_lengths(files, layout, notes);
    if (recovery.doubtful()) notes.push_back(note_of_doubt(first, recovery.newest->generation));
    // Where a newer generation may have been lost, the slots of this one may have been written since: all of it is read
    // before anything is built on it or erased for it.
    const std::string remedy =
        recovery.newest->origin ? remedies.of_damaged_snapshot(first.path()) : remedies.of_loss(first.path());
    const bool cut = extend_cut_data(files, layout, shared ? Sharing::shared : Sharing::exclusive, remedy, notes);
    if (!shared) go_to(options.generation, recovery, first, notes);
    const bool doubtful = (cut || (recovery.doubtful() && !shared)) && !options.replaced;
    const VerifyScope scope = doubtful ? VerifyScope::all : options.verify;
    verify_newest(io, files, directories, options, scope, recovery, notes);
    const std::uint64_t generation = recovery.newest->generation;
    const auto access = shared ? StoreState::Access::read_only : StoreState::Access::read_write;
    auto store = std::make_unique<TensorStore>(
        std::make_unique<StoreState>(io, std::move(files), std::move(*recovery.newest), generation, access));
    StoreState& state = *store->state_;
    state.remedies = options.remedies;
    state.hashers = options.hashers;
    for (const std::string& problem : recovery.problems(first.path())) {
        state.note(fmt::format("{}; generation {} is used.", problem, generation));
    }
    for (std::string& note : notes) state.note(std::move(note));
    if (shared) return store;
    if (store->kind() == StoreKind::durable && layout.device_count() == 1)
        state.shared = SharedSlots::find(state.layout, state.files.data[0]);
    Manifest& manifest = state.pending;
    state.stand_on_found(copy_to_write(recovery, generation));
    manifest.incarnation = agreed_incarnation(options.agree, next_incarnation(manifest.incarnation));
    const auto& next = recovery.copies[(generation + 1) % 2];
    if (std::any_of(next.begin(), next.end(), to_be_erased)) settle_blocking(io, *store);
    prepare_next_commit(io, state.files, state.layout, generation, recovery);
    return store;
}

}  // namespace penstock::store
