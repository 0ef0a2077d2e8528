#include "tests/swap/kills/kill_matrix.h"

#include "aio/words/check.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/swap/kills/kill_process.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

namespace penstock::testing {
namespace {

// By the clock, from before the process has locked anything to well within its steps, or at a point; half of the points
// are in commits, which are a small part of all I/O, and of a new store's in the first one.
KillOrder draw_order(std::mt19937_64& random, KillFocus focus, store::StoreKind kind, bool is_new) {
    if (focus == KillFocus::torn_commits) {
        return {.point = KillPoint{.of = KillPoint::Of::commits,
                                   .how = KillPoint::How::torn,
                                   .nth = 1 + random() % 12,
                                   .seed = random()},
                .after = {}};
    }
    if (random() % 3 == 0) {
        const auto most = std::uint64_t{40} << random() % 11;
        return {.point = {}, .after = std::chrono::microseconds(random() % most)};
    }
    KillPoint point{.how = static_cast<KillPoint::How>(random() % 4), .seed = random()};
    if (kind != store::StoreKind::scratch && random() % 2 == 0) {
        point.of = KillPoint::Of::commits;
        point.nth = 1 + random() % (is_new ? 6 : 20);
    } else {
        point.nth = 1 + random() % (std::uint64_t{32} << 2 * (random() % 3));
    }
    return {.point = point, .after = {}};
}

// One store.
class Run {
   public:
    Run(const std::filesystem::path& parent, KillFocus focus, std::uint64_t seed, KillTally& tally)
        : random_(draw(seed, 1)),
          focus_(focus),
          plan_(draw_plan(seed)),
          model_(store::Layout(plan_.objects, {}).tile_count()),
          tally_(tally),
          scratch_(parent) {
        if (focus == KillFocus::all && seed % 8 == 7) plan_.kind = store::StoreKind::scratch;
        for (std::size_t i = 0; i < plan_.directory_count; ++i) {
            paths_.push_back(scratch_.file(fmt::format("store{}", i)));
            copies_.push_back(copy_.file(fmt::format("store{}", i)));
        }
    }

    std::string operator()();

   private:
    std::string live(std::uint64_t life);
    std::string live_to_the_end(std::uint64_t life);
    std::string compare(const std::vector<std::string>& paths, const KilledLife& last);
    std::string damage_one_copy();
    void copy_directories() const;
    void count(const KilledLife& life);
    void count_found(const Found& found);

    std::mt19937_64 random_;
    KillFocus focus_;
    KillPlan plan_;
    KillModel model_;
    KillTally& tally_;
    TemporaryDirectory scratch_;
    TemporaryDirectory copy_{aio::quick_temporary_path()};
    std::vector<std::string> paths_;
    std::vector<std::string> copies_;
};

std::string Run::operator()() {
    ++tally_.stores;
    const std::uint64_t most = focus_ == KillFocus::torn_commits || random_() % 2 == 0 ? 3 : 40;
    const std::uint64_t lives = 1 + random_() % most;
    for (std::uint64_t life = 0; life < lives; ++life) {
        if (std::string wrong = live(life); !wrong.empty()) return fmt::format("life {}: {}", life, wrong);
    }
    return live_to_the_end(lives);
}

std::string Run::live(std::uint64_t life) {
    const KilledLife lived = run_life(paths_, plan_, model_, life,
                                      draw_order(random_, focus_, plan_.kind, !model_.acknowledged().generation));
    for (const Told& message : lived.messages) model_.told(message);
    if (!lived.complaint.empty()) return lived.complaint;
    if (!lived.killed) return "the process ended by itself";
    count(lived);
    std::string damage;
    if (model_.committed_in_this_life() && random_() % 4 == 0) damage = damage_one_copy();
    // In a copy, so that the next process is the first to open what the kill left.
    copy_directories();
    const std::string wrong = compare(copies_, lived);
    return wrong.empty() ? wrong : wrong + damage;
}

// Not killed: it must be able to go on.
std::string Run::live_to_the_end(std::uint64_t life) {
    const std::uint64_t commits = 2;
    std::optional<std::uint64_t> last;
    if (plan_.kind != store::StoreKind::scratch) last = model_.acknowledged().generation.value_or(-1ULL) + commits;
    const KilledLife lived = run_life(paths_, plan_, model_, life, {.point = {}, .after = {}, .commits = commits});
    for (const Told& message : lived.messages) model_.told(message);
    if (!lived.complaint.empty()) return "the last life: " + lived.complaint;
    if (lived.killed || model_.acknowledged().generation != last) return "the last life did not come to its end";
    return compare(paths_, lived);
}

// Holds what is there against the model and makes that the model's state.
std::string Run::compare(const std::vector<std::string>& paths, const KilledLife& last) {
    Found found = look(paths, plan_, model_);
    if (!found.complaint.empty()) {
        const bool told = !last.messages.empty();
        return fmt::format("{} (the last of {} messages before the kill: {}, {:#x})", found.complaint,
                           last.messages.size(), told ? static_cast<int>(last.messages.back().kind) : -1,
                           told ? last.messages.back().a : 0);
    }
    count_found(found);
    model_.resume_with(std::move(found.image));
    return {};
}

// A bad sector in either copy of the manifest of a generation that was committed: the other copy must do.
std::string Run::damage_one_copy() {
    const std::string path = fmt::format("{}/manifest.{}", paths_.front(), *model_.acknowledged().generation % 2);
    const std::uint64_t copy = random_() % 2;
    const std::uint64_t offset = copy * (std::filesystem::file_size(path) / 2) + 24;  // in its hash
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 0x40));
    PENSTOCK_CHECK(file.good(), "{} cannot be changed", path);
    ++tally_.damaged;
    return fmt::format(" (copy {} of the newest manifest was damaged)", copy + 1);
}

void Run::copy_directories() const {
    for (std::size_t i = 0; i < paths_.size(); ++i) {
        std::filesystem::remove_all(copies_[i]);
        if (std::filesystem::exists(paths_[i])) std::filesystem::copy(paths_[i], copies_[i]);
    }
}

void Run::count(const KilledLife& life) {
    ++tally_.kills;
    const bool by_itself = !life.messages.empty() && life.messages.back().kind == Told::Kind::struck;
    ++(by_itself ? tally_.by_point.at(life.messages.back().a) : tally_.by_clock);
    const std::size_t told = life.messages.size() - (by_itself ? 1 : 0);
    const bool in_commit = told > 0 && life.messages[told - 1].kind == Told::Kind::committing;
    ++(told == 0 ? tally_.in_start : in_commit ? tally_.in_commit : tally_.in_steps);
    ++(plan_.kind == store::StoreKind::scratch ? tally_.scratch
       : plan_.steps_per_commit == 1           ? tally_.every_step
                                               : tally_.every_k_steps);
    ++tally_.by_residency.at(static_cast<std::size_t>(plan_.residency));
    ++tally_.by_directories.at(plan_.directory_count - 1);
}

void Run::count_found(const Found& found) {
    if (!model_.under_way()) return;
    ++(found.image.generation == model_.under_way()->generation ? tally_.new_found : tally_.old_found);
}

}  // namespace

std::string to_string(const KillTally& tally) {
    return fmt::format(
        "{} kills of {} stores: {} in creation or opening, {} in steps, {} in commits; {} by the clock, at an I/O {} "
        "before, {} handed over, {} torn, {} done; durable every step {}, every K steps {}, scratch {}; tiles {} in "
        "RAM, {} mixed, "
        "{} on NVMe; in 1, 2, 3 directories {}, {}, {}; of {} cut-off commits {} were found whole and {} not begun; "
        "{} times a copy of the manifest was damaged as well",
        tally.kills, tally.stores, tally.in_start, tally.in_steps, tally.in_commit, tally.by_clock, tally.by_point[0],
        tally.by_point[1], tally.by_point[2], tally.by_point[3], tally.every_step, tally.every_k_steps, tally.scratch,
        tally.by_residency[0], tally.by_residency[1], tally.by_residency[2], tally.by_directories[0],
        tally.by_directories[1], tally.by_directories[2], tally.new_found + tally.old_found, tally.new_found,
        tally.old_found, tally.damaged);
}

std::vector<std::string> KillMatrix::run(std::uint64_t seed) {
    const std::string wrong = Run(parent_, focus_, seed, tally_)();
    return wrong.empty() ? std::vector<std::string>{} : std::vector{wrong};
}

}  // namespace penstock::testing
