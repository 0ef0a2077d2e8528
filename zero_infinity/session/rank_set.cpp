#include "zero_infinity/session/rank_set.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/store_directory.h"
#include "swap/directory/store_look.h"
#include "swap/format/lock_text.h"
#include "zero_infinity/session/session_info.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

namespace penstock::zero {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint32_t> number_of(std::string_view text) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

struct OtherStore {
    std::uint32_t ranks = 1;  // of its set
    std::string path;
};

// What may be stores of other numbers of ranks in `directory`, as far as this rank sees them.
std::vector<OtherStore> stores_of_others(const std::string& directory, std::uint32_t ranks) {
    std::vector<OtherStore> found;
    if (ranks != 1) found.push_back({1, directory});
    std::error_code unreadable;
    for (const fs::directory_entry& set : fs::directory_iterator(directory, unreadable)) {
        const std::string name = set.path().filename();
        const auto others =
            name.starts_with(set_prefix) ? number_of(std::string_view(name).substr(set_prefix.size())) : std::nullopt;
        if (!others || *others == ranks) continue;
        for (const fs::directory_entry& rank : fs::directory_iterator(set.path(), unreadable))
            if (number_of(rank.path().filename().string())) found.push_back({*others, rank.path()});
    }
    return found;
}

std::string processes(std::uint32_t ranks) {
    return ranks == 1 ? "one process" : fmt::format("{} processes", ranks);
}

std::string started(std::uint32_t ranks) {
    return ranks == 1 ? "one is started" : fmt::format("{} are started", ranks);
}

}  // namespace

std::string rank_directory(const std::string& directory, Partition partition) {
    if (partition.ranks == 1) return directory;
    return fmt::format("{}/{}{}/{}", directory, set_prefix, partition.ranks, partition.rank);
}

// The newest generation must be found by whoever comes next: nobody begins anew beside it unasked.
void refuse_other_number(const std::string& directory, std::uint32_t ranks) {
    for (const OtherStore& other : stores_of_others(directory, ranks))
        if (store::has_commits(other.path))
            throw Error(ExitCode::usage, fmt::format("{} holds what {} committed, and {}: start as many as before, or "
                                                     "name another directory",
                                                     directory, processes(other.ranks), started(ranks)));
}

// What has commits is found by them. Who has none yet is found by its lock, which it takes before it looks: of two that
// begin at once, one at least finds the other. Who goes on from a commit stays: the other is refused for it.
void refuse_other_start(const std::string& directory, Partition partition) {
    refuse_other_number(directory, partition.ranks);
    for (const OtherStore& other : stores_of_others(directory, partition.ranks)) {
        const std::optional<store::StoreLook> look = store::look_at_store(other.path);
        if (look && look->in_use && !store::has_commits(rank_directory(directory, partition)))
            throw Error(ExitCode::usage,
                        fmt::format("{} is in use by a training of {} ({}), and {}: start as many when that has ended, "
                                    "or name another directory",
                                    directory, processes(other.ranks), look->holder_text(), started(partition.ranks)));
    }
}

namespace {

void make_durable(const std::string& directory) {
    const store::Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!opened || ::fsync(opened.get()) != 0)
        throw Error(ExitCode::storage, fmt::format("{} cannot be made durable: {}", directory, aio::errno_text(errno)));
}

[[noreturn]] void refuse_to_make(const std::string& path, int error) {
    throw Error(ExitCode::storage, fmt::format("directory {} cannot be made: {}; make it, or name another one", path,
                                               aio::errno_text(error)));
}

// Other ranks make the same at the same time; appends what this one made. False: what is above it is not there.
bool made_beneath(const std::string& path, std::vector<std::string>& made) {
    if (::mkdir(path.c_str(), 0700) == 0) {
        made.push_back(path);
        const fs::path above = fs::path(path).parent_path();
        make_durable(above.empty() ? "." : above.string());
        return true;
    }
    if (errno != EEXIST && errno != ENOENT) refuse_to_make(path, errno);
    return errno == EEXIST;
}

void make(const std::string& path, std::vector<std::string>& made) {
    if (!made_beneath(path, made)) refuse_to_make(path, ENOENT);
}

void make_all(const fs::path& path, std::vector<std::string>& made) {
    std::error_code unknown;
    if (path.has_parent_path() && !fs::exists(path.parent_path(), unknown)) make_all(path.parent_path(), made);
    make(path, made);
}

// Makes what is above a rank's own directory, which it gives. Of all ranks whose set it is, the last to go removes it.
std::string make_above(const std::string& of_all, Partition partition, std::vector<std::string>& made) {
    make(of_all, made);
    std::string own = rank_directory(of_all, partition);
    const fs::path set = fs::path(own).parent_path();
    make(set, made);
    if (made.empty() || made.back() != set) made.push_back(set);
    return own;
}

// A rank that is refused meanwhile removes the set while it is empty: it is made again.
std::string make_own(const std::string& of_all, Partition partition, std::vector<std::string>& made) {
    for (int tries = 0;; ++tries) {
        std::string own = make_above(of_all, partition, made);
        if (made_beneath(own, made)) return own;
        if (tries == 100) refuse_to_make(own, ENOENT);
    }
}

}  // namespace

RankDirectories::RankDirectories(const CoreOptions& options, Partition partition) : RankDirectories() {
    if (options.swap_directories.empty()) return;
    if (partition.ranks == 1) {
        // Now: its lock would be refused for a folder that is no store's.
        refuse_other_start(options.swap_directories.front(), partition);
        own_ = options.swap_directories;
        return;
    }
    refuse_other_number(options.swap_directories.front(), partition.ranks);
    for (const std::string& directory : options.swap_directories) own_.push_back(make_own(directory, partition, made_));
}

RankDirectories::~RankDirectories() {
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) ::rmdir(path->c_str());  // refuses what is not empty
}

std::string place_of_snapshot(const std::string& path, Partition partition) {
    if (partition.ranks == 1) return path;
    std::vector<std::string> made;
    make_all(path, made);
    return make_above(path, partition, made);
}

std::string find_snapshot(const std::string& path, Partition partition) {
    refuse_other_number(path, partition.ranks);
    return rank_directory(path, partition);
}

void SetMark::write(store::ClientState& client) const {
    client[set_key] = store::to_string(set);
    client[set_epoch_key] = fmt::format("{}", epoch);
    client[set_rank_key] = fmt::format("{} of {}", place.rank, place.ranks);
}

namespace {

// Of a store that says nothing of a set: one of its own.
SetMark mark_of(const store::Manifest& manifest) {
    SetMark mark{.set = manifest.store, .epoch = 1, .place = {}};
    const auto text_of = [&](const char* key) {
        const auto found = manifest.client.find(key);
        return found == manifest.client.end() ? std::string() : found->second;
    };
    if (const auto set = store::parse_uuid(text_of(set_key))) mark.set = *set;
    mark.epoch = number_of(text_of(set_epoch_key)).value_or(1);
    const std::string place = text_of(set_rank_key);
    const std::size_t of = place.find(" of ");
    if (of == std::string::npos) return mark;
    mark.place = {number_of(std::string_view(place).substr(0, of)).value_or(0),
                  number_of(std::string_view(place).substr(of + 4)).value_or(0)};
    return mark;
}

FoundGeneration found_of(const store::Manifest& manifest) {
    return {.generation = manifest.generation, .incarnation = manifest.incarnation};
}

// As it goes through a gather.
struct Said {
    bool is_there = false;
    FoundStore store;
};

Said look(store::OpenStore& open) {
    if (!open.committed() || !open.found().newest) return {};
    const store::Recovery& found = open.found();
    const SetMark mark = mark_of(*found.newest);
    Said said{.is_there = true,
              .store = {.set = mark.set,
                        .epoch = mark.epoch,
                        .place = mark.place,
                        .newest = found_of(*found.newest),
                        .previous = {},
                        .doubtful = found.doubtful()}};
    if (found.previous) said.store.previous = found_of(*found.previous);
    return said;
}

}  // namespace

SetMark new_set(Communicator& communicator, const std::string& directory) {
    const auto all = gathered(communicator, "a new set", store::draw_uuid(directory));
    return {.set = all.front(), .epoch = 1, .place = communicator.partition()};
}

SetOpening decide_together(Communicator& communicator, store::OpenStore& open, const store::OpenOptions& reading) {
    Said own = look(open);
    for (;;) {
        const std::vector<Said> all = gathered(communicator, "what is committed", own);
        std::vector<FoundStores> found(all.size());
        for (std::size_t rank = 0; rank < all.size(); ++rank)
            if (all[rank].is_there) found[rank].push_back(all[rank].store);
        const SetDecision decision = decide(found);
        if (decision.refusal) throw *decision.refusal;
        const RecoveryStep step = decision.steps[communicator.rank()];
        if (std::ranges::find(decision.steps, RecoveryStep::verify_previous) == decision.steps.end())
            return {.step = step,
                    .generation = decision.generation,
                    .mark = {.set = decision.set, .epoch = own.store.epoch, .place = communicator.partition()}};
        if (step == RecoveryStep::verify_previous)
            own.store.previous->tiles = open.previous_is_right(reading) ? FoundTiles::right : FoundTiles::damaged;
    }
}

void check_one_snapshot(Communicator& communicator, store::OpenStore& own, const std::string& path) {
    struct Said {
        store::StoreUuid set{};
        std::uint64_t generation = 0;
        Partition place;
    } said;
    if (const std::optional<store::Manifest>& newest = own.found().newest) {
        const SetMark mark = mark_of(*newest);
        said = {mark.set, newest->origin ? newest->origin->generation : newest->generation, mark.place};
    }
    const std::vector<Said> all = gathered(communicator, "a snapshot", said);
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
        const Said& each = all[rank];
        if (each.place != Partition{rank, communicator.ranks()})
            throw Error(
                ExitCode::usage,
                fmt::format("{}: the snapshot of rank {} of {} was made by rank {} of {}; name one that is whole, "
                            "as its processes made it",
                            path, rank, all.size(), each.place.rank, each.place.ranks));
        if (each.set != all.front().set || each.generation != all.front().generation)
            throw Error(ExitCode::usage,
                        fmt::format("{}: the snapshots of ranks 0 and {} are not of the same step of one run "
                                    "(generations {} and {}); name one that is whole, as its processes made it",
                                    path, rank, all.front().generation, each.generation));
    }
}

}  // namespace penstock::zero
