// store::recover() on four hostile copies: never throws, and takes the newest of those that are whole, by the words of
// swap/FORMAT.md.
#include "swap/directory/recovery.h"

#include "aio/words/check.h"
#include "swap/directory/descriptor.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/fuzz/manifest_forge.h"
#include "tests/fuzz/store_image.h"

#include <fcntl.h>

#include <utility>

namespace penstock::fuzz {
namespace {

void check_newest(const store::Recovery& recovery, const store::StoreUuid& store) {
    using State = store::ManifestCopy::State;
    std::optional<std::uint64_t> newest;
    for (const auto& file : recovery.copies) {
        for (const store::ManifestCopy& copy : file) {
            PENSTOCK_CHECK((copy.state == State::broken || copy.state == State::unread) == !copy.problem.empty(),
                           "state {}: '{}'", static_cast<int>(copy.state), copy.problem);
            if (copy.state == State::whole && (!newest || copy.generation > *newest)) newest = copy.generation;
        }
    }
    PENSTOCK_CHECK(newest.has_value() == recovery.newest.has_value(), "which is the newest?");
    PENSTOCK_CHECK(!recovery.newest || !recovery.never_committed(), "a store that was committed never was");
    if (!recovery.newest) return;
    const store::Manifest& manifest = *recovery.newest;
    PENSTOCK_CHECK(manifest.generation == *newest && manifest.store == store, "generation {}", manifest.generation);
    const store::Layout layout = layout_of(manifest);
    PENSTOCK_CHECK(layout.tile_count() == manifest.tiles.size(), "{} tiles", layout.tile_count());
}

void run(std::span<const std::byte> input) {
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    const StoreImage image(input);
    image.build(scratch.file(""));
    const store::Descriptor directory(::open(scratch.file("0").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const std::optional<store::LockText> lock = image.lock(0);
    const store::StoreUuid store = lock ? lock->uuid : forged_manifest({}, 1, 512).store;
    const store::Recovery recovery = store::recover(directory.get(), store);
    check_newest(recovery, store);
    for (std::size_t file = 0; file < 2; ++file) {
        const FileNature nature = image.nature(0, static_cast<ImageFile>(2 + file));
        if (nature == FileNature::regular) continue;
        for (const store::ManifestCopy& copy : recovery.copies[file])
            PENSTOCK_CHECK(copy.state != store::ManifestCopy::State::whole, "a copy was read through {}",
                           static_cast<int>(nature));
    }
    static_cast<void>(recovery.problems("directory"));
}

// Generations 4 and 5, whole, and what a kill within a commit leaves.
std::vector<Bytes> seeds() {
    const store::Manifest newer = forged_manifest({{"weights", 10'000, 4096}, {"states", 700, 700}}, 1, 512);
    store::Manifest older = newer;
    older.generation = 4;
    store::Manifest other_life = newer;
    other_life.incarnation = 9;
    const Bytes four = encoded(older);
    const Bytes five = encoded(newer);
    const Bytes torn(five.begin(), five.begin() + 100);
    return {join({{0, four}, {1, four}, {2, five}, {3, five}}), join({{0, four}, {1, four}, {2, five}, {3, torn}}),
            join({{0, four}, {1, four}, {2, torn}, {3, torn}}), join({{0, four}, {2, encoded(other_life)}, {3, five}}),
            join({{0, {}}, {4, Bytes(3)}})};
}

}  // namespace

const FuzzTarget recovery_target = {.name = "recovery", .run = run, .mutate = StoreImage::mutate, .seeds = seeds};

}  // namespace penstock::fuzz
