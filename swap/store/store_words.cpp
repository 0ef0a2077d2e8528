// What a StoreState says of its tiles.
#include "aio/words/io_error.h"
#include "aio/words/spare_text.h"
#include "swap/directory/remedy.h"
#include "swap/store/store_state.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>

namespace penstock::store {

// The drive is well where it was never asked: the kernel found no memory at the caller's address.
StoreError StoreState::not_written(const ReadPlace& place, const aio::IoError& error) const noexcept {
    const bool of_memory = error.errno_value == EFAULT;
    return {.kind = of_memory ? StoreError::Kind::memory : StoreError::Kind::io,
            .message = text_or_less([&] {
                return fmt::format("{} could not be written: {}. {}", describe(place), error.message(),
                                   of_memory ? "The kernel cannot read the memory that was given: it must stay mapped "
                                               "until the result, readable, and be no device's. The last committed "
                                               "generation is whole; write the tile again from other memory."
                                             : "The last committed generation is whole; check the device (dmesg, free "
                                               "space), then open the store again.");
            })};
}

StoreError StoreState::unwritten(const ReadPlace& place) const noexcept {
    return {.kind = StoreError::Kind::poisoned,
            .message =
                text_or_less([&] { return fmt::format("{} was not written: {}", describe(place), after_failure()); })};
}

StoreError StoreState::unread(const ReadPlace& place, const aio::IoError& error) const noexcept {
    const bool of_memory = error.errno_value == EFAULT;
    return {.kind = of_memory ? StoreError::Kind::memory : StoreError::Kind::io,
            .message = text_or_less([&] {
                return fmt::format("{} could not be read: {}. {}.", describe(place), error.message(),
                                   of_memory ? "The kernel cannot write to the memory that was given: it must stay "
                                               "mapped until the result, writable, and be no device's; the tile is as "
                                               "it was, read it into other memory"
                                             : remedy());
            })};
}

StoreError StoreState::damaged(const ReadPlace& place) const noexcept {
    return {.kind = StoreError::Kind::damaged,
            .message = text_or_less([&] { return TwiceRead::damage(describe(place), remedy()); })};
}

void StoreState::note_second_reading(const ReadPlace& place) noexcept {
    note(text_or_less([&] { return TwiceRead::note(describe(place)); }));
}

std::string StoreState::describe(const ReadPlace& place) const {
    const Extent extent = layout.extent(place.tile, 0);
    return fmt::format("object '{}', tile {} in {} at offset {} ({} bytes, generation {})",
                       layout.objects()[place.tile.object].name, place.tile.tile, files.data[extent.device].path(),
                       place.offset_bytes, extent.bytes, place.generation);
}

std::string StoreState::after_failure() const {
    return "nothing can be written or committed any more since an earlier failure: " + poisoned_by;
}

std::string StoreState::remedy() const {
    const std::string directory = std::filesystem::path(files.manifests.front().path()).parent_path().string();
    return kind() == StoreKind::snapshot ? remedies->of_damaged_snapshot(directory) : remedies->of_damage(directory);
}

}  // namespace penstock::store
