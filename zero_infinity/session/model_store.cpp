#include "zero_infinity/session/model_store.h"

#include "aio/words/error.h"
#include "swap/directory/recovery.h"
#include "swap/snapshot/snapshot_copy.h"
#include "swap/store/blocking.h"
#include "zero_infinity/plan/session_plan.h"
#include "zero_infinity/weights/fill_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace penstock::zero {
namespace {

class Opening {
   public:
    Opening(const ModelStoreDeps& deps, const CoreOptions& options, const SessionEvents& events)
        : deps_(deps),
          options_(options),
          events_(events),
          in_memory_(is_in_memory(*deps.layout, options) && !deps.open->committed()) {}

    // Of a store that has a generation a copy is of that one, and not of the newest step.
    void check_snapshots() const {
        if (!durable() && options_.snapshots && deps_.open->committed())
            throw Error(ExitCode::usage,
                        fmt::format("{}: nothing is committed (scratch), and {} has a committed store: a snapshot "
                                    "would be of what was committed before; use a new directory, or commit steps",
                                    options_.names.snapshots, deps_.open->directory().path()));
    }

    // `generation`: the newest, or the one before; none: the newest that survives.
    ModelStore resume(std::optional<std::uint64_t> generation = {}) const {
        const std::string& path = deps_.open->directory().path();
        // Looked at before the store is opened: a run that may not go on must not first wait for the verification.
        std::optional<std::uint64_t> accepted;
        const store::Recovery& found = deps_.open->found();
        const bool before = generation && found.previous && found.previous->generation == *generation;
        if (const std::optional<store::Manifest>& newest = before ? found.previous : found.newest) {
            if (newest->origin && options_.purpose == Purpose::training)
                throw Error(ExitCode::usage,
                            fmt::format("{} is a kept snapshot, which is only read; name it as the one to "
                                        "resume from, and another directory for the run's store",
                                        path));
            accept(newest->client, newest->objects, path);
            accepted = newest->generation;
        }
        ModelStore made;
        made.store = &deps_.open->open({.verify = options_.verify,
                                        .generation = generation,
                                        .progress = progress("verifying what was committed"),
                                        .waiting = events_.waiting,
                                        .agree = agree()});
        made.client = made.store->client();
        // Verification may have gone back by a generation.
        if (accepted != made.store->generation()) accept(made.client, made.store->layout().objects(), path);
        deps_.layout->check_stored(made.store->layout());
        made.resumed = true;
        note_scratch(made);
        return made;
    }

    ModelStore initialise_new(const store::ClientState& initial_client,
                              const std::optional<SetMark>& mark = std::nullopt) const {
        deps_.weights->check(deps_.layout->units());
        ModelStore made;
        made.store = &create();
        const store::WorkProgress told = progress(deps_.weights->doing());
        if (in_memory_)
            made.fill = [layout = deps_.layout, source = deps_.weights, threads = options_.worker_threads,
                         told](const Residents& to) {
                fill_memory(
                    *layout, [&to](store::TileId tile) { return to.tile(tile); }, *source, threads, told);
            };
        else
            fill_store({.io = &deps_.open->io(), .store = made.store, .layout = deps_.layout}, *deps_.weights, told);
        made.client = initial_client;
        made.client[fingerprint_key] = deps_.fingerprint;
        made.mark = mark;
        if (mark) mark->write(made.client);
        if (durable()) commit_blocking(deps_.open->io(), *made.store, made.client);
        note_scratch(made);
        return made;
    }

    // With the other ranks, who do the same.
    ModelStore open_set(const store::ClientState& initial_client) const {
        const bool from_snapshot = !options_.resume_from.empty();
        const auto kept = from_snapshot ? find_kept() : nullptr;
        if (kept) check_one_snapshot(*deps_.communicator, *kept, options_.resume_from);
        const SetOpening set = decide();
        if (kept && (set.step == RecoveryStep::make || options_.go_back || !all_went_on_from(*kept, set)))
            return resume_from(kept, mark_of(kept->found()), set);
        if (set.step == RecoveryStep::make) return initialise_new(initial_client, set.mark);
        ModelStore made = resume(set.generation);
        made.mark = set.mark;
        if (kept) note_own_commit(made);
        return made;
    }

    // Each tile of the snapshot is verified as it is read. `kept` is locked. `set`: of several ranks.
    ModelStore resume_from(const std::shared_ptr<store::OpenStore>& kept, const std::string& mark,
                           const std::optional<SetOpening>& set = std::nullopt) const {
        kept->share_io(*deps_.open);
        store::TensorStore& snapshot = kept->open({.waiting = events_.waiting});
        accept(snapshot.client(), snapshot.layout().objects(), options_.resume_from);
        deps_.layout->check_stored(snapshot.layout());
        ModelStore made;
        made.store = (set ? set->step != RecoveryStep::make : deps_.open->committed())
                         ? &deps_.open->open({.replaced = true,
                                              .generation = set ? std::optional(set->generation) : std::nullopt,
                                              .waiting = events_.waiting,
                                              .agree = agree()})
                         : &create();
        if (in_memory_)
            made.fill = [kept](const Residents& to) { to.read(kept->io(), kept->store()); };
        else
            copy_tiles(deps_.open->io(), snapshot, *made.store, progress("copying the snapshot"));
        made.client = snapshot.client();
        made.client[went_on_from_key] = mark;
        if (set) made.mark = set->mark;
        if (set) set->mark.write(made.client);
        if (durable()) commit_blocking(deps_.open->io(), *made.store, made.client);
        made.resumed = true;
        note_scratch(made);
        return made;
    }

    // The snapshot, or the store's own newest generation where that went on from the snapshot.
    ModelStore resume_from_snapshot() const {
        const auto kept = find_kept();
        const std::string mark = mark_of(kept->found());
        const auto newest = deps_.open->committed() ? deps_.open->found().newest : std::nullopt;
        if (options_.go_back || !newest || !went_on_from(*newest, mark)) return resume_from(kept, mark);
        ModelStore made = resume();
        note_own_commit(made);
        return made;
    }

   private:
    std::shared_ptr<store::OpenStore> find_kept() const {
        return std::make_shared<store::OpenStore>(
            store::OpenStore::find({find_snapshot(options_.resume_from, deps_.layout->partition())},
                                   store::Sharing::shared, options_.snapshot_remedies));
    }

    // What all ranks go on from in the run's own place. A creation that did not end on all of them begins again.
    SetOpening decide() const {
        SetOpening set =
            decide_together(*deps_.communicator, *deps_.open,
                            {.progress = progress("verifying what was committed before"), .waiting = events_.waiting});
        if (set.step != RecoveryStep::make) return set;
        if (deps_.open->committed() && deps_.open->found().newest) deps_.open->forget_first();
        set.mark = new_set(*deps_.communicator, deps_.open->directory().path());
        return set;
    }

    // A kill within the copying of a snapshot leaves the generation before it on some.
    bool all_went_on_from(store::OpenStore& kept, const SetOpening& set) const {
        const store::Recovery& found = deps_.open->found();
        const bool before = found.previous && found.previous->generation == set.generation;
        const std::uint64_t own = went_on_from(before ? *found.previous : *found.newest, mark_of(kept.found())) ? 1 : 0;
        return std::ranges::min(gathered(*deps_.communicator, "what was gone on from", own)) == 1;
    }

    void note_own_commit(ModelStore& made) const {
        made.notes.push_back(fmt::format("{} went on from {} before, and goes on from its own newest commit",
                                         deps_.open->directory().path(), options_.resume_from));
    }

    // Tells a snapshot wherever it is moved to; empty where it has no whole manifest, which opening it says.
    static std::string mark_of(const store::Recovery& snapshot) {
        if (!snapshot.newest || !snapshot.newest->origin) return {};
        const store::Origin& origin = *snapshot.newest->origin;
        return fmt::format("{} {}", store::to_string(origin.store), origin.generation);
    }

    static bool went_on_from(const store::Manifest& manifest, const std::string& mark) {
        const auto found = manifest.client.find(went_on_from_key);
        return !mark.empty() && found != manifest.client.end() && found->second == mark;
    }

    bool durable() const noexcept { return options_.durability != Durability::scratch; }

    void note_scratch(ModelStore& made) const {
        if (durable()) return;
        made.notes.emplace_back(made.store->generation()
                                    ? "scratch: no step of this run is committed; what was committed before it stays"
                                    : "scratch: nothing of this run is kept when it ends");
    }

    store::TensorStore& create() const {
        const std::span<const store::ObjectSpec> objects = deps_.layout->objects();
        return deps_.open->create({.objects = {objects.begin(), objects.end()},
                                   .kind = kind(),
                                   .shares = options_.swap_shares,
                                   .origin = origin(),
                                   .lost = options_.lost_store,
                                   .progress = progress("preparing the swap files"),
                                   .waiting = events_.waiting,
                                   .agree = agree(),
                                   .stays_empty = in_memory_});
    }

    store::StoreKind kind() const noexcept {
        if (options_.purpose == Purpose::forwards) return store::StoreKind::snapshot;
        return durable() ? store::StoreKind::durable : store::StoreKind::scratch;
    }

    // Weights that are committed once are a snapshot of themselves.
    std::optional<store::Origin> origin() const {
        if (options_.purpose == Purpose::training) return std::nullopt;
        return store::Origin{.store = deps_.open->directory().uuid(), .generation = 0};
    }

    // Throws where the run may not go on from `client`.
    void accept(const store::ClientState& client, const std::vector<store::ObjectSpec>& objects,
                const std::string& place) const {
        if (events_.recovered) events_.recovered(client, place);
        const auto stored = client.find(fingerprint_key);
        if (stored == client.end() || stored->second != deps_.fingerprint)
            throw Error(ExitCode::usage,
                        fmt::format("the store in {} was made for another model, codec or optimizer ({}); {}", place,
                                    deps_.layout->difference(objects),
                                    options_.purpose == Purpose::training
                                        ? "use another directory"
                                        : "open it with the units, types and codec that it was made with, or name "
                                          "another directory"));
    }

    store::AgreeOnIncarnation agree() const {
        return [this](std::uint64_t own) { return agree_on_largest(*deps_.communicator, "the incarnation", own); };
    }

    store::WorkProgress progress(const char* what) const {
        return [events = &events_, what](std::uint64_t done, std::uint64_t total) {
            if (events->progress) events->progress(what, done, total);
        };
    }

    const ModelStoreDeps& deps_;
    const CoreOptions& options_;
    const SessionEvents& events_;
    const bool in_memory_;  // the store is to have no tiles
};

}  // namespace

ModelStore open_model_store(const ModelStoreDeps& deps, const CoreOptions& options,
                            const store::ClientState& initial_client, const SessionEvents& events) {
    const Opening opening(deps, options, events);
    opening.check_snapshots();
    if (deps.layout->partition().ranks > 1) return opening.open_set(initial_client);
    if (!options.resume_from.empty()) return opening.resume_from_snapshot();
    if (deps.open->committed()) return opening.resume();
    return opening.initialise_new(initial_client);
}

}  // namespace penstock::zero
