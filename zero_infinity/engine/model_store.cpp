#include "zero_infinity/engine/model_store.h"

#include "aio/words/error.h"
#include "swap/directory/recovery.h"
#include "swap/snapshot/snapshot_copy.h"
#include "swap/store/blocking.h"
#include "zero_infinity/weights/fill_store.h"

#include <fmt/format.h>

namespace penstock::engine {
namespace {

class Opening {
   public:
    Opening(const ModelStoreDeps& deps, const SessionOptions& options, const SessionEvents& events)
        : deps_(deps), options_(options), events_(events) {}

    ModelStore resume() const {
        const store::StoreDirectory& first = deps_.open->directory();
        // Looked at before the store is opened: a run that may not go on must not first wait for the verification.
        const store::Recovery seen = store::recover(first);
        if (seen.newest && seen.newest->origin) {
            throw Error(ExitCode::usage, fmt::format("{} is a kept snapshot, which is only read; name it as the one to "
                                                     "resume from, and another directory for the run's store",
                                                     first.path()));
        }
        if (seen.newest) accept(seen.newest->client, first.path());
        ModelStore made;
        made.store = &deps_.open->open(
            {.verify = options_.verify, .progress = progress("verifying what was committed"), .agree = agree()});
        made.client = made.store->client();
        // Verification may have gone back by a generation.
        if (!seen.newest || seen.newest->generation != made.store->generation()) accept(made.client, first.path());
        deps_.layout->check_stored(made.store->layout());
        made.resumed = true;
        note_scratch(made);
        return made;
    }

    ModelStore initialise_new(const store::ClientState& initial_client) const {
        deps_.weights->check(deps_.layout->units());
        ModelStore made;
        made.store = &create();
        fill_store({.io = &deps_.open->io(), .store = made.store, .layout = deps_.layout}, *deps_.weights,
                   progress(deps_.weights->doing()));
        made.client = initial_client;
        made.client[fingerprint_key] = deps_.fingerprint;
        if (durable()) commit_blocking(deps_.open->io(), *made.store, made.client);
        note_scratch(made);
        return made;
    }

    // Each tile of the snapshot is verified as it is read.
    ModelStore resume_from_snapshot() const {
        store::OpenStore kept = store::OpenStore::find({options_.resume_from}, store::Sharing::shared);
        kept.share_io(*deps_.open);
        store::TensorStore& snapshot = kept.open();
        accept(snapshot.client(), options_.resume_from);
        deps_.layout->check_stored(snapshot.layout());
        ModelStore made;
        made.store = deps_.open->committed() ? &deps_.open->open({.agree = agree()}) : &create();
        copy_tiles(deps_.open->io(), snapshot, *made.store, progress("copying the snapshot"));
        made.client = snapshot.client();
        if (durable()) commit_blocking(deps_.open->io(), *made.store, made.client);
        made.resumed = true;
        note_scratch(made);
        return made;
    }

   private:
    bool durable() const noexcept { return options_.engine.durability != zero::Durability::scratch; }

    void note_scratch(ModelStore& made) const {
        if (durable()) return;
        made.notes.emplace_back(made.store->generation()
                                    ? "scratch: no step of this run is committed; what was committed before it stays"
                                    : "scratch: nothing of this run is kept when it ends");
    }

    store::TensorStore& create() const {
        const std::span<const store::ObjectSpec> objects = deps_.layout->objects();
        return deps_.open->create({.objects = {objects.begin(), objects.end()},
                                   .kind = durable() ? store::StoreKind::durable : store::StoreKind::scratch,
                                   .shares = options_.swap_shares,
                                   .progress = progress("preparing the swap files"),
                                   .agree = agree()});
    }

    // Throws where the run may not go on from `client`.
    void accept(const store::ClientState& client, const std::string& place) const {
        if (events_.recovered) events_.recovered(client);
        const auto stored = client.find(fingerprint_key);
        if (stored == client.end() || stored->second != deps_.fingerprint)
            throw Error(ExitCode::usage,
                        fmt::format("the store in {} was made for another model, codec or optimizer; use another "
                                    "directory",
                                    place));
    }

    store::AgreeOnIncarnation agree() const {
        return [this](std::uint64_t own) { return agree_on_largest(*deps_.communicator, own); };
    }

    store::WorkProgress progress(const char* what) const {
        return [this, what](std::uint64_t done, std::uint64_t total) {
            if (events_.progress) events_.progress(what, done, total);
        };
    }

    const ModelStoreDeps& deps_;
    const SessionOptions& options_;
    const SessionEvents& events_;
};

}  // namespace

ModelStore open_model_store(const ModelStoreDeps& deps, const SessionOptions& options,
                            const store::ClientState& initial_client, const SessionEvents& events) {
    const Opening opening(deps, options, events);
    if (!options.resume_from.empty()) return opening.resume_from_snapshot();
    if (deps.open->committed()) return opening.resume();
    return opening.initialise_new(initial_client);
}

}  // namespace penstock::engine
