#include "tests/zero_infinity/ranks/commit_model.h"

#include "tests/zero_infinity/ranks/model_rank.h"
#include "zero_infinity/ranks/commit_barrier.h"
#include "zero_infinity/ranks/set_recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>

namespace penstock::testing {
namespace {

using zero::FoundGeneration;
using zero::FoundStore;
using zero::FoundStores;
using zero::FoundTiles;
using zero::RecoveryStep;

// ---------------------------------------------------------------- a state, and how it was come to

struct State {
    std::array<Rank, 3> ranks;
    Byte life, set, incarnation;  // of this life's commits
    Byte kills;
    Byte promised;  // newest generation that all ranks have reported, + 1
};
static_assert(std::has_unique_object_representations_v<State>);

struct Move {
    enum class What : Byte { life, acts, killed, gather, small } what = What::life;
    Byte rank = 0;
    Stage before = Stage::ended;
};

struct Node {
    State state;
    const Node* from;
    Move by;
};

std::string_view bytes_of(const Node& node) {
    return {reinterpret_cast<const char*>(&node.state), sizeof node.state};
}
struct Hash {
    std::size_t operator()(const Node& node) const { return std::hash<std::string_view>()(bytes_of(node)); }
};
struct Equal {
    bool operator()(const Node& one, const Node& other) const { return bytes_of(one) == bytes_of(other); }
};

std::string words_of(const Move& move) {
    switch (move.what) {
        case Move::What::life:
            return "a life begins";
        case Move::What::killed:
            return fmt::format("rank {} ends", move.rank);
        case Move::What::gather:
            return "all gather";
        case Move::What::small:
            return "all join the small collective";
        case Move::What::acts:
            break;
    }
    constexpr std::array acts{
        "", "takes, goes back or makes", "writes", "writes", "flushes", "writes copy 1", "writes copy 2"};
    return fmt::format("rank {} {}", move.rank, acts[static_cast<std::size_t>(move.before)]);
}

// ---------------------------------------------------------------- what a rank says

class Saying final : public zero::Communicator {
   public:
    explicit Saying(std::uint32_t ranks) : of_all(ranks) {}
    std::uint32_t rank() const noexcept override { return 0; }
    std::uint32_t ranks() const noexcept override { return static_cast<std::uint32_t>(of_all.size()); }
    void all_gather(std::string_view, std::span<const std::byte>, std::span<std::byte> all) override {
        std::memcpy(all.data(), of_all.data(), all.size());
        asked = true;
    }

    std::vector<std::uint64_t> of_all;
    bool asked = false;
};

// The product's, as the rank has come to it.
class Barrier {
   public:
    Barrier(const Rank& rank, Saying& saying) : barrier_(saying), said_(saying.of_all.size()) {
        barrier_.committed(rank.mine - 1U);
        if (rank.least == 0) return;
        std::fill(said_.begin(), said_.end(), rank.least - 1U);
        barrier_.heard(said_);
    }
    zero::CommitBarrier* operator->() { return &barrier_; }
    Byte least(Byte generations) const {
        for (Byte next = generations + 1; next > 0; --next)
            if (barrier_.may_write(next)) return next;
        return 0;
    }

   private:
    zero::CommitBarrier barrier_;
    std::vector<std::uint64_t> said_;
};

// ---------------------------------------------------------------- all of them

class Explorer {
   public:
    explicit Explorer(const CommitModel& model) : model_(model), saying_(model.ranks) {}

    Explored run() {
        add({}, nullptr, {});
        while (!queue_.empty() && explored_.wrong.empty()) {
            const Node* node = queue_.front();
            queue_.pop_front();
            expand(*node);
            if (explored_.wrong.empty()) continue;
            for (const Node* at = node; at->from != nullptr; at = at->from) explored_.way.push_back(words_of(at->by));
            std::reverse(explored_.way.begin(), explored_.way.end());
        }
        explored_.states = nodes_.size();
        return explored_;
    }

   private:
    std::span<const Rank> ranks_of(const State& state) const { return std::span(state.ranks).first(model_.ranks); }
    std::span<Rank> ranks_of(State& state) const { return std::span(state.ranks).first(model_.ranks); }
    template <typename Is>
    bool all(const State& state, const Is& is) const {
        return std::all_of(ranks_of(state).begin(), ranks_of(state).end(), is);
    }
    void complain(std::string what) {
        if (explored_.wrong.empty()) explored_.wrong = std::move(what);
    }

    void add(const State& state, const Node* from, Move by) {
        const auto [node, is_new] = nodes_.insert({state, from, by});
        if (is_new) queue_.push_back(&*node);
        ++successors_;
    }

    void expand(const Node& node) {
        const State& state = node.state;
        if (all(state, [](const Rank& each) { return each.stage == Stage::ended; })) return begin_life(node);
        successors_ = 0;
        const bool fallen = !all(state, [](const Rank& each) { return each.stage != Stage::ended; });
        for (Byte rank = 0; rank < model_.ranks; ++rank) {
            if (state.ranks[rank].stage == Stage::ended) continue;
            act(node, rank);
            if (fallen || state.kills < model_.kills) end(node, rank, !fallen);
        }
        if (!fallen) {
            gather(node);
            join(node);
        }
        const auto is_done = [this](const Rank& each) { return each.next > model_.generations; };
        if (successors_ == 0 && !all(state, is_done)) complain("nobody can go on");
    }

    void end(const Node& node, Byte rank, bool killed) {
        State state = node.state;
        if (killed) ++state.kills;
        Rank& it = state.ranks[rank];
        it.stage = Stage::ended;
        it.step = {};
        it.next = it.least = 0;
        it.word = Word::none;
        if (all(state, [](const Rank& each) { return each.stage == Stage::ended; }))
            for (Rank& each : ranks_of(state)) each.mine = 0;
        add(state, &node, {Move::What::killed, rank});
    }

    // ------------------------------------------------------------ a life begins

    // As the store's opening: a doubtful one was read.
    std::vector<FoundStores> found_by(const State& state) const {
        std::vector<FoundStores> found(model_.ranks);
        for (Byte number = 0; number < model_.ranks; ++number) {
            const Rank& rank = state.ranks[number];
            const Look look = look_at(rank);
            if (!look.newest) continue;
            FoundStore store{.place = {number, model_.ranks}, .newest = generation_of(*look.newest)};
            store.set[0] = std::byte{look.newest->of.set};
            if (look.previous) store.previous = generation_of(*look.previous);
            store.doubtful = look.doubtful;
            if (look.doubtful) store.newest.tiles = read_tiles(rank, *look.newest);
            found[number].push_back(store);
        }
        return found;
    }
    FoundGeneration generation_of(const Copy& copy) const {
        return {.generation = copy.of.count - 1U,
                .incarnation = model_.compare_incarnations ? copy.of.incarnation : std::uint64_t{0}};
    }

    zero::SetDecision decide(const State& state) const {
        std::vector<FoundStores> found = found_by(state);
        zero::SetDecision decision = zero::decide(found);
        for (Byte rank = 0; rank < decision.steps.size(); ++rank)
            if (decision.steps[rank] == RecoveryStep::verify_previous)
                found[rank][0].previous->tiles = read_tiles(state.ranks[rank], *look_at(state.ranks[rank]).previous);
        decision = zero::decide(found);
        if (model_.take_the_least) return decision;
        for (Byte rank = 0; rank < decision.steps.size(); ++rank) {
            if (decision.steps[rank] == RecoveryStep::make) continue;
            decision.steps[rank] = RecoveryStep::take;
            decision.generation = std::max(decision.generation, found[rank][0].newest.generation);
        }
        return decision;
    }

    void begin_life(const Node& node) {
        State state = node.state;
        const zero::SetDecision decision = decide(state);
        if (decision.refusal) return complain(decision.refusal->what());
        const bool makes = decision.steps.front() == RecoveryStep::make;
        if (makes ? state.promised > 0 : decision.generation + 1 < state.promised)
            complain(fmt::format("generation {} is gone on from, but all had reported {}", decision.generation,
                                 state.promised - 1));
        if (!makes) check(state, decision);
        ++state.life;
        state.set = makes ? state.life : std::to_integer<Byte>(decision.set[0]);
        state.incarnation = makes ? 1 : state.life;
        for (Byte rank = 0; rank < model_.ranks; ++rank) {
            state.ranks[rank].stage = Stage::recovering;
            state.ranks[rank].step = decision.steps[rank];
            state.ranks[rank].next = static_cast<Byte>(decision.generation);
        }
        add(state, &node, {Move::What::life});
    }

    void check(const State& state, const zero::SetDecision& decision) {
        std::optional<Tag> first;
        for (Byte rank = 0; rank < model_.ranks; ++rank) {
            const Look look = look_at(state.ranks[rank]);
            const std::optional<Copy>& chosen =
                decision.steps[rank] == RecoveryStep::take ? look.newest : look.previous;
            if (!chosen) return complain(fmt::format("rank {} has nothing to take", rank));
            if (!first) first = chosen->of;
            if (chosen->of != *first)
                complain(fmt::format("rank {} has generation {} of incarnation {}, rank 0 {} of {}", rank,
                                     chosen->of.count - 1, chosen->of.incarnation, first->count - 1,
                                     first->incarnation));
            if (!is_intact(state.ranks[rank], *chosen))
                complain(fmt::format("rank {} has written over generation {}", rank, chosen->of.count - 1));
        }
    }

    // ------------------------------------------------------------ by itself

    void act(const Node& node, Byte number) {
        State state = node.state;
        Rank& rank = state.ranks[number];
        const Stage before = rank.stage;
        const Tag own{static_cast<Byte>(rank.next + 1), state.incarnation, state.set};
        switch (before) {
            case Stage::ended:
                return;
            case Stage::recovering:
                recover(rank);
                if (!model_.wait_after_erasing) rank.least = rank.mine;
                break;
            case Stage::asking:
                if (rank.next > model_.generations || rank.word == Word::owed || must_ask(rank)) return;
                tear(rank);
                break;
            case Stage::cleared:
                tear(rank);
                break;
            case Stage::torn:
                rank.slots[other_slot(rank)] = own;
                rank.stage = Stage::flushed;
                break;
            case Stage::flushed:
                rank.manifests[rank.next % 2][0] = {own, static_cast<Byte>(other_slot(rank))};
                rank.stage = Stage::copied;
                break;
            case Stage::copied:
                rank.manifests[rank.next % 2][1] = rank.manifests[rank.next % 2][0];
                commit(state, rank);
                break;
        }
        add(state, &node, {Move::What::acts, number, before});
    }

    void tear(Rank& rank) const {
        rank.slots[other_slot(rank)] = {};
        rank.stage = Stage::torn;
        rank.word = model_.small_collectives ? Word::owed : Word::none;
    }

    void commit(State& state, Rank& rank) const {
        rank.mine = ++rank.next;
        rank.stage = Stage::asking;
        Byte least = rank.mine;
        for (const Rank& each : ranks_of(state)) least = std::min(least, each.mine);
        state.promised = std::max(state.promised, least);
    }

    bool must_ask(const Rank& rank) {
        if (!model_.wait_before_writes) return false;
        std::fill(saying_.of_all.begin(), saying_.of_all.end(), rank.mine - 1U);
        saying_.asked = false;
        Barrier(rank, saying_)->before_write(rank.next);
        return saying_.asked;
    }

    // ------------------------------------------------------------ together

    void hear(const State& state) {
        for (Byte rank = 0; rank < model_.ranks; ++rank) saying_.of_all[rank] = state.ranks[rank].mine - 1U;
    }

    void gather(const Node& node) {
        State state = node.state;
        if (!all(state, [&](const Rank& each) {
                return each.stage == Stage::asking && each.next <= model_.generations && each.word != Word::owed;
            }))
            return;
        const auto asks = [&](const Rank& each) { return must_ask(each); };
        if (!all(state, asks)) {
            if (std::any_of(ranks_of(state).begin(), ranks_of(state).end(), asks))
                complain("one rank gathers, and another one does not");
            return;
        }
        hear(state);
        for (Rank& rank : ranks_of(state)) {
            Barrier barrier(rank, saying_);
            barrier->before_write(rank.next);
            rank.least = barrier.least(model_.generations);
            rank.stage = Stage::cleared;
        }
        add(state, &node, {Move::What::gather});
    }

    // All are within one step, or have ended it.
    void join(const Node& node) {
        State state = node.state;
        const auto step_of = [](const Rank& each) { return each.next - (each.stage == Stage::asking ? 1 : 0); };
        if (!all(state,
                 [&](const Rank& each) { return each.word == Word::owed && step_of(each) == step_of(state.ranks[0]); }))
            return;
        hear(state);
        for (Rank& rank : ranks_of(state)) {
            Barrier barrier(rank, saying_);
            barrier->heard(saying_.of_all);
            rank.least = barrier.least(model_.generations);
            rank.word = Word::said;
        }
        add(state, &node, {Move::What::small});
    }

    const CommitModel model_;
    Saying saying_;
    std::unordered_set<Node, Hash, Equal> nodes_;
    std::deque<const Node*> queue_;
    std::uint64_t successors_ = 0;  // of the node that is expanded
    Explored explored_;
};

}  // namespace

Explored explore(const CommitModel& model) {
    return Explorer(model).run();
}

}  // namespace penstock::testing
