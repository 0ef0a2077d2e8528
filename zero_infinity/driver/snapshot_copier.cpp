#include "zero_infinity/driver/snapshot_copier.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "swap/store/blocking.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

namespace penstock::zero {

SnapshotCopier::~SnapshotCopier() {
    if (idle()) return;
    PENSTOCK_CHECK(deps_.store->abandoned(), "the copy to {} is under way", path_);
    static_cast<void>(directory_.release());  // the device still works on its files, so it stays locked
    deps_.memory.orphan();
}

void SnapshotCopier::begin(const std::string& path, const store::ClientState* client) {
    PENSTOCK_CHECK(idle() && (deps_.memory || deps_.residents != nullptr),
                   "a copy to {} while another is under way, or without memory", path);
    path_ = path;
    try {
        std::filesystem::create_directories(std::filesystem::path(path).parent_path());
        directory_ = std::make_unique<store::StoreDirectory>(path, deps_.job);
        const store::Blocks blocks = deps_.residents == nullptr ? store::Blocks::shared : store::Blocks::own;
        std::unique_ptr<store::TensorStore> copy =
            create_snapshot(*deps_.io, *deps_.store, *directory_, deps_.caching, blocks);
        if (copy->granule_bytes() > pool::granule_bytes)
            throw Error(ExitCode::storage, fmt::format("the file system asks for direct I/O in units of {} bytes; keep "
                                                       "snapshots on another one",
                                                       copy->granule_bytes()));
        if (deps_.residents == nullptr) {
            copy_ = std::make_unique<store::SnapshotCopy>(*deps_.store, std::move(copy), deps_.memory.span(), client);
            return;
        }
        ended_at_once_ = EndedSnapshot{.path = path, .bytes = deps_.residents->write(*deps_.io, *copy)};
        commit_blocking(*deps_.io, *copy, *client);
        copy.reset();
        directory_.reset();
    } catch (const std::exception& error) {  // Error, or of std::filesystem
        ended_at_once_ = EndedSnapshot{.path = path, .bytes = 0, .problem = error.what()};
        if (directory_) directory_->withdraw();
        directory_.reset();
    }
}

void SnapshotCopier::stop() noexcept {
    if (copy_) copy_->stop();
}

SnapshotProgress SnapshotCopier::progress() const noexcept {
    if (!copy_) return {};
    return {.under_way = true, .copied_bytes = copy_->copied_bytes(), .total_bytes = copy_->total_bytes()};
}

std::optional<EndedSnapshot> SnapshotCopier::take_ended() {
    if (ended_at_once_) return std::exchange(ended_at_once_, std::nullopt);
    if (!copy_ || !copy_->finished()) return std::nullopt;
    EndedSnapshot ended{.path = path_, .bytes = copy_->copied_bytes()};
    if (copy_->error()) ended.problem = copy_->error()->message;
    copy_.reset();
    directory_.reset();
    return ended;
}

}  // namespace penstock::zero
