#include "tests/swap/kills/kill_life.h"

#include "aio/words/error.h"

#include "tests/swap/store/exercise.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

namespace penstock::testing {
namespace {

std::string name_of(const std::optional<std::uint64_t>& generation) {
    return generation ? fmt::format("generation {}", *generation) : "no generation";
}

// Every byte and the client's state. What is wrong, or nothing.
std::string difference(aio::Io& io, store::TensorStore& store, const KillPlan& plan, const Image& image) {
    if (store.client() != client_of(image.stamp)) return "the client's state is another one";
    std::vector<TileTask> tasks;
    for (std::uint32_t i = 0; i < store.layout().tile_count(); ++i) {
        const store::TileId tile = store.layout().tile(i);
        if (store.written(tile) != (image.versions[i] != 0))
            return fmt::format("object {} tile {}: written or not is wrong", tile.object, tile.tile);
        if (image.versions[i] != 0) tasks.push_back({.tile = tile, .holds = image.versions[i]});
    }
    return KillWindow(io, store, plan).run(tasks);
}

bool opens(aio::Io& io, const std::vector<store::StoreDirectory*>& directories, const KillPlan& plan) {
    try {
        open_store(io, directories, plan);
        return true;
    } catch (const Error&) {
        return false;
    }
}

}  // namespace

Found examine(aio::Io& io, const std::vector<store::StoreDirectory*>& directories, const KillPlan& plan,
              const KillModel& model) {
    const Image& last = model.acknowledged();
    Found found;
    const store::DirectoryContent content = directories.front()->content();
    if (content != store::DirectoryContent::committed) {
        if (last.generation) found.complaint = name_of(last.generation) + " was forgotten";
        found.image.versions.resize(last.versions.size());
        if (content == store::DirectoryContent::unfinished && opens(io, directories, plan))
            found.complaint = "a store without a generation was opened";
        return found;
    }
    try {
        found.store = open_store(io, directories, plan);
    } catch (const Error& error) {
        found.complaint = error.what();
        return found;
    }
    const auto generation = found.store->generation();
    if (generation == last.generation) {
        found.image = last;
    } else if (model.under_way() && generation == model.under_way()->generation) {
        found.image = *model.under_way();
    } else {
        found.complaint = fmt::format("{} was found, but {} was committed and {} was under way", name_of(generation),
                                      name_of(last.generation),
                                      name_of(model.under_way() ? model.under_way()->generation : std::nullopt));
        return found;
    }
    found.complaint = difference(io, *found.store, plan, found.image);
    if (!found.complaint.empty()) found.complaint = name_of(generation) + ": " + found.complaint;
    return found;
}

KillLife::KillLife(const KillPlan& plan, const KillModel& model, std::uint64_t life, KillListener& listener)
    : plan_(plan), model_(model), listener_(listener), first_version_((life + 1) << 32U) {}

std::string KillLife::run(aio::Io& io, const std::vector<store::StoreDirectory*>& directories, std::uint64_t commits) {
    Found found = examine(io, directories, plan_, model_);
    if (!found.complaint.empty()) return found.complaint;
    const bool fresh = found.store == nullptr;
    store_ = fresh ? create_store(io, directories, plan_) : std::move(found.store);
    tell(fresh ? Told::Kind::created : Told::Kind::opened);
    versions_ = found.image.versions;
    window_ = std::make_unique<KillWindow>(io, *store_, plan_);
    for (std::uint64_t done = 0; done < commits; ++done) {
        for (std::uint64_t i = 0; i < plan_.steps_per_commit; ++i) {
            // Of a new store all tiles, or some that stay unwritten for a while.
            const bool everything = fresh && done + i == 0 && draw(plan_.seed, 4) % 2 == 0;
            if (std::string wrong = step(everything); !wrong.empty()) return wrong;
        }
        if (plan_.kind == store::StoreKind::scratch) continue;
        if (std::string wrong = commit(io); !wrong.empty()) return wrong;
    }
    return {};
}

std::string KillLife::step(bool everything) {
    std::mt19937_64 random(draw(plan_.seed, new_version()));
    std::vector<TileTask> tasks;
    std::vector<Told> messages;
    for (std::uint32_t i = 0; i < versions_.size(); ++i) {
        if (!everything && random() % 8 >= plan_.written_of_8) continue;
        TileTask task{.tile = store_->layout().tile(i)};
        if (versions_[i] != 0 && is_read_first(task.tile)) task.holds = versions_[i];
        if (random() % 8 == 0) task.writes.push_back(new_version());  // written over at once
        versions_[i] = task.writes.emplace_back(new_version());
        messages.push_back({Told::Kind::wrote, i, versions_[i]});
        tasks.push_back(std::move(task));
    }
    std::shuffle(tasks.begin(), tasks.end(), random);
    listener_.hear(messages);
    return window_->run(tasks);
}

// Beside it, some tiles are read: that is allowed during a commit.
std::string KillLife::commit(aio::Io& io) {
    const Version stamp = new_version();
    tell(Told::Kind::committing, stamp);
    TestCommit operation;
    store_->commit(operation, client_of(stamp));
    std::vector<TileTask> tasks;
    for (std::uint32_t i = 0; i < versions_.size(); ++i) {
        if (versions_[i] != 0 && draw(stamp, i) % 8 == 0)
            tasks.push_back({.tile = store_->layout().tile(i), .holds = versions_[i]});
    }
    const std::string wrong = window_->run(tasks);
    while (!operation.idle()) io.wait(std::chrono::seconds(1));
    if (operation.error()) return operation.error()->message;
    if (!wrong.empty()) return wrong;
    tell(Told::Kind::committed, store_->generation().value());
    return {};
}

bool KillLife::is_read_first(store::TileId tile) const {
    switch (plan_.residency) {
        case Residency::ram:
            return false;
        case Residency::mixed:
            return draw(plan_.seed, tile.object, tile.tile) % 2 == 0;
        case Residency::nvme:
            return true;
    }
    return true;
}

void KillLife::tell(Told::Kind kind, std::uint64_t a) const {
    listener_.hear({{{kind, a, 0}}});
}

}  // namespace penstock::testing
