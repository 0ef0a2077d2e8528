#include "bench/swap/swap_rig.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "bench/harness/interruption.h"
#include "swap/format/hash.h"
#include "swap/store/verify.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

namespace penstock::bench {
namespace {

constexpr const char* object_name = "tensor";
constexpr const char* owner = "penstock bench swap";
constexpr std::chrono::milliseconds glance{100};

// The one place that makes stores here.
store::TensorStore& make_store(store::OpenStore& open, const SwapRigOptions& options, std::uint64_t bytes,
                               Interruption& stop) {
    return open.create({.objects = {{object_name, bytes, options.tile_bytes}},
                        .progress = [&stop](std::uint64_t, std::uint64_t) { stop.check(); }});
}

aio::File make_plain(const std::string& path, std::uint64_t bytes) {
    aio::File file(AT_FDCWD, path, path, {.mode = aio::FileMode::create});
    file.reserve(bytes);
    return file;
}

struct Committing final : store::CommitOperation {
    void committed() noexcept override {}
};

}  // namespace

const char* to_string(TileWork work) noexcept {
    switch (work) {
        case TileWork::read:
            return "read";
        case TileWork::write:
            return "write";
        case TileWork::update:
            return "update";
        case TileWork::verify:
            break;
    }
    return "verify";
}

// ---------------------------------------------------------------- one tile on its way

struct SwapRig::Mover {
    Mover(SwapRig& its_rig, std::size_t slot) : rig(its_rig), memory(its_rig.memory_.bytes(slot)) {}
    virtual ~Mover() = default;
    virtual void start(aio::IoKind kind) = 0;

    SwapRig& rig;
    std::span<std::byte> memory;
    std::uint32_t tile = 0;
    aio::IoKind kind = aio::IoKind::read;
};

struct SwapRig::StoreMover final : Mover, store::TileOperation {
    using Mover::Mover;
    void start(aio::IoKind next_kind) override {
        kind = next_kind;
        const store::TileId id{0, Mover::tile};
        // As the update pipeline: as demand reads they would hold the writes back.
        if (kind == aio::IoKind::read) {
            rig.store_->read(*this, id, memory, aio::Urgency::prefetch);
        } else {
            rig.store_->write(*this, id, memory, aio::Urgency::write_back);
        }
    }
    void tile_done() noexcept override {
        rig.moved(*this, rig.store_->extent_bytes({0, Mover::tile}),
                  store::TileOperation::error() ? &store::TileOperation::error()->message : nullptr);
    }
};

struct SwapRig::PlainMover final : Mover, aio::Transfer {
    using Mover::Mover;
    void start(aio::IoKind next_kind) override {
        kind = next_kind;
        const std::uint32_t slot = kind == aio::IoKind::read ? rig.plain_slot_ : 1 - rig.plain_slot_;
        const store::Extent extent = rig.store_->layout().extent({0, Mover::tile}, slot);
        rig.open_.io().start(
            *this, {.kind = kind,
                    .file = &rig.plain_,
                    .data = memory.data(),
                    .offset_bytes = extent.offset_bytes,
                    .bytes = extent.bytes,
                    .urgency = kind == aio::IoKind::read ? aio::Urgency::prefetch : aio::Urgency::write_back});
    }
    void done() noexcept override {
        const std::string message = error() ? error()->message() : std::string();
        rig.moved(*this, request().bytes, error() ? &message : nullptr);
    }
};

SwapRig::Mover& SwapRig::mover(Side side, std::size_t slot) const noexcept {
    if (side == Side::store) return *store_movers_[slot];
    return *plain_movers_[slot];
}

// ---------------------------------------------------------------- passes

void SwapRig::next(Mover& mover) noexcept {
    if (section_.error || section_.next_tile == section_.end_tile) return;
    mover.tile = section_.next_tile++;
    ++section_.running;
    mover.start(section_.work == TileWork::write ? aio::IoKind::write : aio::IoKind::read);
}

void SwapRig::moved(Mover& mover, std::uint64_t bytes, const std::string* error) noexcept {
    if (error != nullptr) section_.error = *error;
    section_.bytes += bytes;
    if (!section_.error && section_.work == TileWork::update && mover.kind == aio::IoKind::read) {
        std::memcpy(mover.memory.data(), &++steps_, sizeof(steps_));  // so that no tile stays as it was
        return mover.start(aio::IoKind::write);
    }
    --section_.running;
    next(mover);
}

// Also after an error or a signal what is in flight comes back first: nothing of the rig may end before it.
void SwapRig::settle() {
    std::exception_ptr interrupted;
    for (auto look = std::chrono::steady_clock::now(); section_.running > 0;) {
        if (const auto stuck = open_.io().advance(glance)) give_up(*stuck);
        const auto now = std::chrono::steady_clock::now();
        if (now < look) continue;
        look = now + glance;
        try {
            if (!interrupted) stop_.check();
        } catch (const Error&) {
            interrupted = std::current_exception();
            section_.end_tile = section_.next_tile;
        }
    }
    if (interrupted) std::rethrow_exception(interrupted);
    if (section_.error) throw Error(ExitCode::storage, *section_.error);
}

// The device still has operations and memory, for ever.
void SwapRig::give_up(const aio::OldestTransfer& stuck) {
    store_->abandon();
    for (auto& mover : store_movers_) static_cast<void>(mover.release());
    for (auto& mover : plain_movers_) static_cast<void>(mover.release());
    store_movers_.clear();
    plain_movers_.clear();
    for (std::size_t slot = 0; slot < memory_.leases(); ++slot) memory_.orphan(slot);
    throw Error(ExitCode::storage, stuck.message() + "; check the device (dmesg).");
}

zero::Moved SwapRig::run(Side side, TileWork work, std::uint32_t end_tile) {
    PENSTOCK_CHECK(open_.io().idle(), "the last pass has not ended");
    section_ = {.work = work, .next_tile = 0, .end_tile = end_tile, .running = 0, .bytes = 0, .error = {}};
    const zero::Stopwatch watch;
    for (std::size_t slot = 0; slot < memory_.leases(); ++slot) next(mover(side, slot));
    settle();
    return watch.stop(section_.bytes);
}

double SwapRig::commit() {
    auto operation = std::make_unique<Committing>();
    const zero::Stopwatch watch;
    store_->commit(*operation, {{"step", std::to_string(++steps_)}});
    while (!operation->idle()) {
        if (const auto stuck = open_.io().advance(glance); stuck && !operation->idle()) {
            static_cast<void>(operation.release());
            give_up(*stuck);
        }
    }
    const double seconds = watch.seconds();
    if (operation->error()) throw Error(ExitCode::storage, operation->error()->message);
    return seconds;
}

zero::Moved SwapRig::verify_store() {
    const zero::Stopwatch watch;
    const store::VerifyReport report =
        verify(open_.io(), *store_, {.progress = [this](std::uint64_t, std::uint64_t) { stop_.check(); }});
    if (!report.damages.empty()) throw Error(ExitCode::storage, report.damages.front());
    return watch.stop(report.bytes);
}

SwapPass SwapRig::pass(Side side, TileWork work) {
    if (work == TileWork::verify && side == Side::store) return {.moved = verify_store(), .commit_seconds = 0};
    SwapPass result{.moved = run(side, work, store_->layout().tile_count()), .commit_seconds = 0};
    if (work == TileWork::read || work == TileWork::verify) return result;
    if (side == Side::store) {
        result.commit_seconds = commit();
    } else {
        plain_slot_ = 1 - plain_slot_;
    }
    return result;
}

double SwapRig::commit_one_tile() {
    run(Side::store, TileWork::update, 1);
    return commit();
}

zero::Moved SwapRig::create_another(std::uint64_t bytes) {
    const BenchFolder folder(options_.directory, "swap-new");
    store::OpenStore another({folder.path()}, owner);
    another.share_io(open_);
    const zero::Stopwatch watch;
    const store::TensorStore& store = make_store(another, options_, bytes, stop_);
    return watch.stop(store.layout().device_bytes(0));
}

zero::Moved SwapRig::hash(double seconds) const {
    const zero::Stopwatch watch;
    std::uint64_t bytes = 0;
    std::uint64_t seen = 0;
    do {
        for (std::size_t slot = 0; slot < memory_.leases(); ++slot) {
            const std::span<const std::byte> tile = memory_.bytes(slot);
            seen = store::hash_tile(tile, {.store = seen, .object = 0, .tile = 0, .generation = bytes}).low;
            bytes += tile.size();
        }
    } while (watch.seconds() < seconds);
    return watch.stop(bytes);
}

// ---------------------------------------------------------------- set-up

SwapRig::SwapRig(const SwapRigOptions& options, Interruption& stop)
    : options_(options),
      stop_(stop),
      folder_(options.directory, "swap"),
      memory_(std::vector<std::size_t>(options.tiles_on_their_way, options.tile_bytes), "--tile"),
      open_({folder_.path() + "/store"}, owner) {
    notes_ = memory_.pool().notes();
    for (std::size_t slot = 0; slot < memory_.leases(); ++slot) zero::fill_random(memory_.bytes(slot), slot);
    open_.start_io({.backend = options.backend});
    if (!open_.backend_note().empty()) notes_.push_back(open_.backend_note());
    const std::string refused = open_.io().register_memory(memory_.pool().ring_ranges());
    if (!refused.empty()) notes_.push_back("memory is not registered with the ring: " + refused);
    store_ = &make_store(open_, options, options.bytes, stop);
    if (options.tile_bytes % store_->granule_bytes() != 0) {
        throw Error(ExitCode::usage, fmt::format("--tile {}: this device asks for multiples of {}", options.tile_bytes,
                                                 store_->granule_bytes()));
    }
    plain_ = make_plain(folder_.path() + "/plain", store_->layout().device_bytes(0));
    for (std::size_t slot = 0; slot < memory_.leases(); ++slot) {
        store_movers_.push_back(std::make_unique<StoreMover>(*this, slot));
        plain_movers_.push_back(std::make_unique<PlainMover>(*this, slot));
    }
    for (int slot = 0; slot < 2; ++slot) {  // both slots of both
        pass(Side::store, TileWork::write);
        pass(Side::plain, TileWork::write);
    }
}

SwapRig::~SwapRig() = default;

std::vector<std::string> SwapRig::notes() const {
    std::vector<std::string> lines = notes_;
    lines.insert(lines.end(), store_->notes().begin(), store_->notes().end());
    return lines;
}

}  // namespace penstock::bench
