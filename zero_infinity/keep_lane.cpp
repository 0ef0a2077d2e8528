#include "zero_infinity/keep_lane.h"

#include "aio/check.h"
#include "aio/error.h"
#include "zero_infinity/unit_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace penstock {

std::uint64_t keep_bytes(const std::vector<UnitLayout>& units, const StateFormat& format) {
    std::uint64_t longest = 0;
    for (const UnitLayout& unit : units)
        for (const ObjectSpec& object : unit.objects(format))
            longest = std::max(longest, whole_granules(std::min(object.bytes, object.tile_bytes)));
    return 2 * longest;
}

KeepLane::~KeepLane() {
    if (idle()) return;
    PENSTOCK_CHECK(parts_.store->abandoned(), "the copy to {} is under way", path_);
    static_cast<void>(directory_.release());  // the device still works on its files, so it stays locked
    parts_.memory.forsake();
}

void KeepLane::begin(const std::string& path) {
    PENSTOCK_CHECK(idle() && parts_.memory, "a copy to {} while another is under way, or without memory", path);
    path_ = path;
    try {
        std::filesystem::create_directories(std::filesystem::path(path).parent_path());
        directory_ = std::make_unique<StoreDirectory>(path, parts_.job);
        std::unique_ptr<TensorStore> copy = create_kept(*parts_.io, *parts_.store, *directory_, parts_.caching);
        if (copy->granule_bytes() > granule_bytes)
            throw Error(ExitCode::storage, fmt::format("the file system asks for direct I/O in units of {} bytes; keep "
                                                       "snapshots on another one",
                                                       copy->granule_bytes()));
        keeper_ = std::make_unique<Keeper>(*parts_.store, std::move(copy), parts_.memory.span());
    } catch (const std::exception& error) {  // Error, or of std::filesystem
        refused_ = KeptCopy{.path = path, .bytes = 0, .problem = error.what()};
        directory_.reset();
    }
}

void KeepLane::stop() noexcept {
    if (keeper_) keeper_->stop();
}

KeepProgress KeepLane::progress() const noexcept {
    if (!keeper_) return {};
    return {.under_way = true, .copied_bytes = keeper_->copied_bytes(), .total_bytes = keeper_->total_bytes()};
}

std::optional<KeptCopy> KeepLane::take_ended() {
    if (refused_) return std::exchange(refused_, std::nullopt);
    if (!keeper_ || !keeper_->finished()) return std::nullopt;
    KeptCopy ended{.path = path_, .bytes = keeper_->copied_bytes()};
    if (keeper_->error()) ended.problem = keeper_->error()->message;
    keeper_.reset();
    directory_.reset();
    return ended;
}

}  // namespace penstock
