#include "swap/store/zero_fill.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "pinned_pool/region.h"
#include "swap/format/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

namespace penstock::store {
namespace {

constexpr std::uint64_t buffer_bytes = 4ULL << 20;  // FACTS: writes reach their plateau at 2 to 8 MiB in flight
constexpr unsigned lanes_per_range = 3;

class ZeroFill final : public LongWork {
   public:
    ZeroFill(aio::Io& io, const std::vector<ZeroRange>& ranges, std::function<void()> keep_files);
    void start();  // a flush per range follows its last write
    const std::optional<aio::IoError>& error() const noexcept { return error_; }

    bool finished() const noexcept override { return active_ == 0; }
    void stop() noexcept override { stopped_ = true; }
    void abandon() noexcept override { keep_files_(); }
    std::uint64_t done_bytes() const noexcept override { return written_bytes_; }
    std::uint64_t total_bytes() const noexcept override { return total_bytes_; }
    const char* stuck_remedy() const noexcept override { return "check the device (dmesg)."; }

   private:
    struct Range {
        ZeroRange range;
        std::uint64_t issued_bytes = 0;
        unsigned active_lanes = 0;
        bool flushed = false;
    };
    struct Lane final : aio::Transfer {
        ZeroFill* owner = nullptr;
        Range* range = nullptr;
        void done() noexcept override { owner->lane_done(*this); }
    };

    void lane_done(Lane& lane) noexcept;
    void start_next(Lane& lane);
    void start(Lane& lane, const aio::TransferRequest& request);

    aio::Io& io_;
    std::function<void()> keep_files_;
    pool::Region zeros_;  // only ever read, so that all lanes share it
    std::deque<Range> ranges_;
    std::deque<Lane> lanes_;
    unsigned active_ = 0;
    bool stopped_ = false;
    std::uint64_t written_bytes_ = 0;
    std::uint64_t total_bytes_ = 0;
    std::optional<aio::IoError> error_;
};

ZeroFill::ZeroFill(aio::Io& io, const std::vector<ZeroRange>& ranges, std::function<void()> keep_files)
    : io_(io), keep_files_(std::move(keep_files)), zeros_(buffer_bytes, 1, pool::Registration::none) {
    for (const ZeroRange& range : ranges) {
        total_bytes_ += range.bytes;
        ranges_.push_back({.range = range, .issued_bytes = 0, .active_lanes = 0, .flushed = false});
        for (unsigned i = 0; i < lanes_per_range; ++i) {
            Lane& lane = lanes_.emplace_back();
            lane.owner = this;
            lane.range = &ranges_.back();
        }
    }
}

void ZeroFill::start() {
    for (Lane& lane : lanes_) start_next(lane);
}

// The next piece of the lane's range; when none is left, its last lane flushes.
void ZeroFill::start_next(Lane& lane) {
    Range& range = *lane.range;
    if (stopped_) return;
    const std::uint64_t bytes = std::min(buffer_bytes, range.range.bytes - range.issued_bytes);
    if (bytes > 0) {
        const std::uint64_t offset = range.range.offset_bytes + range.issued_bytes;
        range.issued_bytes += bytes;
        start(lane, {.kind = aio::IoKind::write,
                     .file = range.range.file,
                     .data = zeros_.data(),
                     .offset_bytes = offset,
                     .bytes = bytes,
                     .urgency = aio::Urgency::write_back});
    } else if (range.active_lanes == 0 && !range.flushed) {
        range.flushed = true;
        start(lane,
              {.kind = aio::IoKind::flush, .file = range.range.file, .data = nullptr, .offset_bytes = 0, .bytes = 0});
    }
}

void ZeroFill::start(Lane& lane, const aio::TransferRequest& request) {
    ++lane.range->active_lanes;
    ++active_;
    io_.start(lane, request);
}

void ZeroFill::lane_done(Lane& lane) noexcept {
    --lane.range->active_lanes;
    --active_;
    if (lane.error()) {
        if (!error_) error_ = lane.error();
        stopped_ = true;
    } else {
        written_bytes_ += lane.request().bytes;
    }
    start_next(lane);
}

[[noreturn]] void throw_error(const aio::IoError& error) {
    const bool full = error.errno_value == ENOSPC || error.errno_value == EDQUOT;
    const char* remedy =
        full ? "free some space or choose another directory" : "check the device (dmesg), or choose another directory";
    throw Error(full ? ExitCode::does_not_fit : ExitCode::storage,
                fmt::format("the store's files cannot be prepared: {}; {}.", error.message(), remedy));
}

}  // namespace

void fill_with_zeros(aio::Io& io, const std::vector<ZeroRange>& ranges, const WorkProgress& progress,
                     std::function<void()> keep_files) {
    auto filling = std::make_unique<ZeroFill>(io, ranges, std::move(keep_files));
    const auto filled = start_and_finish(io, std::move(filling), progress);
    if (filled->error()) throw_error(*filled->error());
}

void fill_files(aio::Io& io, StoreFiles& files, const std::vector<ZeroRange>& ranges, const WorkProgress& progress) {
    fill_with_zeros(io, ranges, progress, [&files] { files.keep_for_ever(); });
}

std::vector<ZeroRange> whole_ranges(const StoreFiles& files, const Layout& layout, Contents contents) {
    std::vector<ZeroRange> ranges;
    for (const aio::File& file : files.manifests) {
        ranges.push_back({.file = &file, .offset_bytes = 0, .bytes = 2 * manifest_capacity(layout)});
    }
    if (contents == Contents::manifests) return ranges;
    for (std::uint32_t device = 0; device < layout.device_count(); ++device) {
        ranges.push_back({.file = &files.data[device], .offset_bytes = 0, .bytes = layout.device_bytes(device)});
    }
    return ranges;
}

}  // namespace penstock::store
