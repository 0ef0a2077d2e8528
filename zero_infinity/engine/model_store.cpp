#include "zero_infinity/engine/model_store.h"

#include "aio/error.h"
#include "swap/blocking.h"
#include "swap/keep.h"
#include "swap/recovery.h"
#include "zero_infinity/engine/initialise.h"
#include "zero_infinity/unit_store.h"

#include <fmt/format.h>

namespace penstock {
namespace {

class Opening {
   public:
    Opening(const ModelStoreParts& parts, const SessionOptions& options, const SessionEvents& events)
        : parts_(parts), options_(options), events_(events) {}

    ModelStore resume() const {
        StoreDirectory& first = *parts_.directories.front();
        // Looked at before the store is opened: a run that may not go on must not first wait for the verification.
        const Recovery seen = recover(first.fd(), first.uuid());
        if (seen.newest && seen.newest->origin) {
            throw Error(ExitCode::usage, fmt::format("{} is a kept snapshot, which is only read; name it as the one to "
                                                     "resume from, and another directory for the run's store",
                                                     first.path()));
        }
        if (seen.newest) accept(seen.newest->client, first.path());
        ModelStore made;
        made.store = TensorStore::open(*parts_.io, parts_.directories,
                                       {.caching = options_.caching,
                                        .verify = options_.verify,
                                        .progress = progress("verifying what was committed"),
                                        .deadline = options_.io_deadline});
        made.client = made.store->client();
        // Verification may have gone back by a generation.
        if (!seen.newest || seen.newest->generation != made.store->generation()) accept(made.client, first.path());
        find_objects(*made.store, *parts_.layouts, parts_.format);
        made.resumed = true;
        note_scratch(made);
        return made;
    }

    ModelStore initialise_new(const ClientState& initial_client) const {
        ModelStore made;
        made.store = create();
        initialise(*parts_.io, *made.store, *parts_.model, *parts_.layouts, parts_.format, *parts_.pieces,
                   options_.seed, options_.io_deadline, progress("drawing the initial weights"));
        made.client = initial_client;
        made.client[fingerprint_key] = parts_.fingerprint;
        if (durable()) commit_blocking(*parts_.io, *made.store, made.client, options_.io_deadline);
        note_scratch(made);
        return made;
    }

    // Each tile of the snapshot is verified as it is read.
    ModelStore resume_from_snapshot() const {
        StoreDirectory directory = StoreDirectory::find(options_.resume_from, Sharing::shared);
        const auto snapshot = TensorStore::open(*parts_.io, {&directory}, {.caching = options_.caching});
        accept(snapshot->client(), options_.resume_from);
        find_objects(*snapshot, *parts_.layouts, parts_.format);
        ModelStore made;
        made.store = parts_.directories.front()->content() == DirectoryContent::committed
                         ? TensorStore::open(*parts_.io, parts_.directories, {.caching = options_.caching})
                         : create();
        copy_tiles(*parts_.io, *snapshot, *made.store, progress("copying the snapshot"), options_.io_deadline);
        made.client = snapshot->client();
        if (durable()) commit_blocking(*parts_.io, *made.store, made.client, options_.io_deadline);
        made.resumed = true;
        note_scratch(made);
        return made;
    }

   private:
    bool durable() const noexcept { return options_.engine.durability != Durability::scratch; }

    void note_scratch(ModelStore& made) const {
        if (durable()) return;
        made.notes.emplace_back(made.store->generation()
                                    ? "scratch: no step of this run is committed; what was committed before it stays"
                                    : "scratch: nothing of this run is kept when it ends");
    }

    std::unique_ptr<TensorStore> create() const {
        std::vector<ObjectSpec> objects;
        for (const UnitLayout& layout : *parts_.layouts)
            for (ObjectSpec& object : layout.objects(parts_.format)) objects.push_back(std::move(object));
        return TensorStore::create(*parts_.io, parts_.directories,
                                   {.objects = std::move(objects),
                                    .kind = durable() ? StoreKind::durable : StoreKind::scratch,
                                    .shares = options_.swap_shares,
                                    .caching = options_.caching,
                                    .progress = progress("preparing the swap files"),
                                    .deadline = options_.io_deadline});
    }

    // Throws where the run may not go on from `client`.
    void accept(const ClientState& client, const std::string& place) const {
        if (events_.recovered) events_.recovered(client);
        const auto stored = client.find(fingerprint_key);
        if (stored == client.end() || stored->second != parts_.fingerprint)
            throw Error(ExitCode::usage,
                        fmt::format("the store in {} was made for another model, codec or optimizer; use another "
                                    "directory",
                                    place));
    }

    std::function<void(std::uint64_t, std::uint64_t)> progress(const char* what) const {
        return [this, what](std::uint64_t done, std::uint64_t total) {
            if (events_.progress) events_.progress(what, done, total);
        };
    }

    const ModelStoreParts& parts_;
    const SessionOptions& options_;
    const SessionEvents& events_;
};

}  // namespace

ModelStore open_model_store(const ModelStoreParts& parts, const SessionOptions& options,
                            const ClientState& initial_client, const SessionEvents& events) {
    const Opening opening(parts, options, events);
    if (!options.resume_from.empty()) return opening.resume_from_snapshot();
    if (parts.directories.front()->content() == DirectoryContent::committed) return opening.resume();
    return opening.initialise_new(initial_client);
}

}  // namespace penstock
