#include "zero_infinity/ranks/set_recovery.h"

#include "aio/words/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace penstock::zero {
namespace {

struct Member {
    std::uint32_t finder = 0;  // rank of the run
    FoundStore store;
};
using Members = std::vector<Member>;  // of one set, never empty

bool same(const FoundGeneration& one, const FoundGeneration& other) {
    return one.generation == other.generation && one.incarnation == other.incarnation;
}

// Newest first.
std::vector<Members> sets_of(std::span<const FoundStores> of_all_ranks) {
    std::map<store::StoreUuid, Members> by_uuid;
    for (std::uint32_t rank = 0; rank < of_all_ranks.size(); ++rank)
        for (const FoundStore& found : of_all_ranks[rank]) by_uuid[found.set].push_back({rank, found});
    std::vector<Members> sets;
    for (auto& [uuid, members] : by_uuid) sets.push_back(std::move(members));
    std::stable_sort(sets.begin(), sets.end(), [](const Members& one, const Members& other) {
        return one.front().store.epoch > other.front().store.epoch;
    });
    return sets;
}

// Nobody is past generation 0, and not all ranks have that.
bool is_unfinished(const Members& set) {
    const FoundStore& first = set.front().store;
    return set.size() < first.place.ranks &&
           std::all_of(set.begin(), set.end(), [](const Member& each) { return each.store.newest.generation == 0; });
}

// ---------------------------------------------------------------- what is said

std::string line_of(const FoundStore& found) {
    const auto words = [](const FoundGeneration& of) {
        return fmt::format("{} of incarnation {}{}", of.generation, of.incarnation,
                           of.tiles == FoundTiles::damaged ? ", damaged" : "");
    };
    std::string line = fmt::format("store {} of {}, epoch {} of set {}: generation {}", found.place.rank,
                                   found.place.ranks, found.epoch, store::to_string(found.set), words(found.newest));
    if (found.previous) line += fmt::format("; before it {}", words(*found.previous));
    return line;
}

std::string table_of(std::span<const FoundStores> of_all_ranks) {
    std::string table;
    for (std::size_t rank = 0; rank < of_all_ranks.size(); ++rank) {
        if (of_all_ranks[rank].empty()) table += fmt::format("\n  rank {}: nothing is committed", rank);
        for (const FoundStore& found : of_all_ranks[rank])
            table += fmt::format("\n  rank {}: {}", rank, line_of(found));
    }
    return table;
}

constexpr const char* from_a_snapshot = "go on from the newest snapshot, with new directories";

// ---------------------------------------------------------------- whether a set can be gone on from

// Each says why not, and what helps; or nothing.
std::string trouble_of_places(const Members& set, std::uint32_t ranks_of_run) {
    const FoundStore& first = set.front().store;
    std::vector<const Member*> by_place(first.place.ranks, nullptr);
    for (const Member& each : set) {
        const FoundStore& found = each.store;
        if (found.epoch != first.epoch || found.place.ranks != first.place.ranks ||
            found.place.rank >= found.place.ranks)
            return "The stores of one set say different things of it. Put back the directories of one run.";
        const Member* other = std::exchange(by_place[found.place.rank], &each);
        if (other != nullptr)
            return fmt::format(
                "Ranks {} and {} both have the store of rank {}: a directory was copied, or is named "
                "for both. Give each rank the directory that it had.",
                other->finder, each.finder, found.place.rank);
        if (each.finder != found.place.rank && first.place.ranks == ranks_of_run)
            return fmt::format(
                "Rank {} has the store of rank {}. Start each rank where its directory is, or give it "
                "the directory that it had.",
                each.finder, found.place.rank);
    }
    return {};
}

std::string trouble_of_missing(const Members& set) {
    std::vector<std::uint32_t> missing;
    for (std::uint32_t rank = 0; rank < set.front().store.place.ranks; ++rank)
        if (std::none_of(set.begin(), set.end(), [&](const Member& each) { return each.store.place.rank == rank; }))
            missing.push_back(rank);
    if (missing.empty()) return {};
    return fmt::format("There is no store of rank {}. Put back its directory, or {}.", fmt::join(missing, ", "),
                       from_a_snapshot);
}

struct Trouble {
    ExitCode code = ExitCode::storage;
    std::string words;  // empty: none
};

Trouble trouble_of(const Members& set, std::uint32_t ranks_of_run) {
    if (std::string words = trouble_of_places(set, ranks_of_run); !words.empty()) return {.words = std::move(words)};
    const std::uint32_t ranks = set.front().store.place.ranks;
    if (ranks != ranks_of_run)
        return {ExitCode::usage,
                fmt::format("{} ranks are started, but what is committed is of {}. Start as many, or name new "
                            "directories.",
                            ranks_of_run, ranks)};
    return {.words = trouble_of_missing(set)};
}

// ---------------------------------------------------------------- what all ranks of a set have

bool has(const FoundStore& store, const FoundGeneration& wanted) {
    const auto is = [&](const FoundGeneration& each) {
        return same(each, wanted) && each.tiles != FoundTiles::damaged;
    };
    return is(store.newest) || (store.previous && is(*store.previous));
}

// The newest that all have, of one life.
std::optional<FoundGeneration> common_of(const Members& set) {
    const FoundStore& first = set.front().store;
    const auto all_have = [&](const FoundGeneration& wanted) {
        return std::all_of(set.begin(), set.end(), [&](const Member& each) { return has(each.store, wanted); });
    };
    if (all_have(first.newest)) return first.newest;
    return first.previous && all_have(*first.previous) ? first.previous : std::nullopt;
}

std::string trouble_of_generations(const Members& set) {
    std::vector<std::uint32_t> damaged;
    for (const Member& each : set)
        if (each.store.newest.tiles == FoundTiles::damaged) damaged.push_back(each.store.place.rank);
    if (damaged.empty())
        return fmt::format(
            "The ranks have no generation in common: runs were mixed, or directories were put back from "
            "copies of different moments. Put back those of all ranks of one moment, or {}.",
            from_a_snapshot);
    return fmt::format(
        "The newest generation is damaged on rank {}, and the one before is not whole on all ranks. "
        "Put back the directories of all ranks of one moment, or {}.",
        fmt::join(damaged, ", "), from_a_snapshot);
}

// Nobody writes over it while one rank has nothing newer; unless that was lost, or is damaged.
bool is_kept_by_the_rule(const Members& set, const FoundGeneration& common) {
    const auto has_nothing_newer = [&](const Member& each) { return same(each.store.newest, common); };
    const auto may_have_lost = [](const Member& each) {
        return each.store.doubtful || each.store.newest.tiles == FoundTiles::damaged;
    };
    return std::any_of(set.begin(), set.end(), has_nothing_newer) &&
           std::none_of(set.begin(), set.end(), may_have_lost);
}

std::vector<RecoveryStep> steps_to(const Members& set, const FoundGeneration& common) {
    const bool kept = is_kept_by_the_rule(set, common);
    std::vector<RecoveryStep> steps(set.size(), RecoveryStep::take);
    for (const Member& each : set) {
        if (same(each.store.newest, common)) continue;
        const bool sure = kept || each.store.previous->tiles == FoundTiles::right;
        steps[each.store.place.rank] = sure ? RecoveryStep::go_back : RecoveryStep::verify_previous;
    }
    return steps;
}

}  // namespace

SetDecision decide(std::span<const FoundStores> of_all_ranks) {
    PENSTOCK_CHECK(!of_all_ranks.empty(), "what no rank found");
    const auto ranks = static_cast<std::uint32_t>(of_all_ranks.size());
    const auto refuse = [&](ExitCode code, const std::string& why) {
        return SetDecision{.refusal = Error(code, why + " Nothing was changed." + table_of(of_all_ranks))};
    };
    const std::vector<Members> sets = sets_of(of_all_ranks);
    const auto newest = std::find_if_not(sets.begin(), sets.end(), is_unfinished);
    if (newest == sets.end()) {
        if (!sets.empty() && sets.front().front().store.epoch > 1)
            return refuse(ExitCode::storage,
                          "A change of the number of ranks was interrupted, and the set that it began with is not "
                          "here. Make its directories visible, or name new ones.");
        return {.steps = std::vector(ranks, RecoveryStep::make)};
    }
    const FoundStore& first = newest->front().store;
    const auto rival = std::find_if_not(std::next(newest), sets.end(), is_unfinished);
    if (rival != sets.end() && rival->front().store.epoch == first.epoch)
        return refuse(ExitCode::storage, "There are stores of two runs. Name the directories of one of them.");
    if (const Trouble trouble = trouble_of(*newest, ranks); !trouble.words.empty())
        return refuse(trouble.code, trouble.words);
    const std::optional<FoundGeneration> common = common_of(*newest);
    if (!common) return refuse(ExitCode::storage, trouble_of_generations(*newest));
    return {.set = first.set, .generation = common->generation, .steps = steps_to(*newest, *common)};
}

}  // namespace penstock::zero
