#include "zero_infinity/measure/io_rig.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <algorithm>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::nanoseconds glance = std::chrono::milliseconds(100);

// Slot 0 alone.
class InTurn final : public RequestSource {
   public:
    explicit InTurn(std::span<const aio::TransferRequest> requests) : requests_(requests) {}
    bool next(std::size_t slot, aio::TransferRequest& request) noexcept override {
        if (slot != 0 || requests_.empty()) return false;
        request = requests_.front();
        requests_ = requests_.subspan(1);
        return true;
    }

   private:
    std::span<const aio::TransferRequest> requests_;
};

}  // namespace

struct IoRig::Mover final : aio::Transfer {
    Mover(IoRig& its_rig, std::size_t its_slot) : rig(its_rig), slot(its_slot) {}
    void done() noexcept override { rig.ended(*this); }
    IoRig& rig;
    std::size_t slot;
};

RigOptions plain_rig(std::uint32_t block_bytes, std::uint64_t in_flight_bytes) {
    RigOptions options{.lease_bytes = std::vector<std::size_t>(in_flight_bytes / block_bytes, block_bytes)};
    options.limits.chunk_bytes = block_bytes;
    aio::InFlightLimits& in_flight = options.limits.in_flight;
    in_flight.prefetch_bytes = in_flight_bytes;
    in_flight.scrub_bytes = block_bytes;
    in_flight.read_bytes = in_flight_bytes + block_bytes;
    in_flight.write_back_bytes = in_flight_bytes;
    in_flight.throttled_bytes = in_flight_bytes;
    in_flight.write_bytes = in_flight_bytes;
    return options;
}

IoRig::IoRig(std::span<const aio::File> files, const RigOptions& options)
    : memory_(options.lease_bytes, options.setting), asking_(options.asking), notes_(memory_.pool().notes()) {
    for (std::size_t slot = 0; slot < memory_.leases(); ++slot) {
        fill_random(memory(slot), slot + 1);
        movers_.push_back(std::make_unique<Mover>(*this, slot));
    }
    const std::uint64_t places = std::max(options.limits.in_flight.read_bytes, options.limits.in_flight.write_bytes) /
                                 options.limits.chunk_bytes;
    aio::ChosenBackend chosen =
        open_backend(files.front().fd(), {.depth = std::max<std::size_t>(64, 2 * places)}, options.backend);
    if (!chosen.note.empty()) notes_.push_back(chosen.note);
    for (const aio::File& file : files)
        if (!file.direct()) notes_.push_back(file.fallback());
    io_ = std::make_unique<aio::Io>(std::move(chosen.backend), options.limits);
    if (options.registration == RingRegistration::wanted) register_all(files);
}

void IoRig::register_all(std::span<const aio::File> files) {
    const std::string memory_refused = io_->register_memory(memory_.pool().ring_ranges());
    registered_memory_ = memory_refused.empty();
    if (!registered_memory_) notes_.push_back("memory is not registered with the ring: " + memory_refused);
    std::vector<const aio::File*> each;
    for (const aio::File& file : files) each.push_back(&file);
    const std::string file_refused = io_->register_files(each);
    registered_file_ = file_refused.empty();
    if (!registered_file_) notes_.push_back("the file is not registered with the ring: " + file_refused);
}

IoRig::~IoRig() {
    section_.over = true;
    io_.reset();  // decides what is lost
    for (const auto& mover : movers_) {
        if (mover->orphaned()) memory_.orphan(mover->slot);
    }
}

void IoRig::start(Mover& mover) noexcept {
    aio::TransferRequest request;
    if (section_.over || !section_.source->next(mover.slot, request)) return;
    if (request.kind != aio::IoKind::flush) request.data = memory(mover.slot).data();
    io_->start(mover, request);
    ++section_.running;
}

void IoRig::ended(Mover& mover) noexcept {
    --section_.running;
    if (mover.error()) {
        if (!section_.error) section_.error = mover.error();
        section_.over = true;
        return;
    }
    section_.bytes += mover.request().bytes;
    start(mover);
}

// Returns how long to wait at most before it is asked again.
std::chrono::nanoseconds IoRig::start_what_is_due() noexcept {
    auto later = section_.source->later();
    if (section_.over || !later) return glance;
    const auto now = Clock::now();
    if (later->at <= now) {
        start(*movers_[later->slot]);
        later = section_.source->later();
    }
    return later ? std::clamp<std::chrono::nanoseconds>(later->at - now, std::chrono::nanoseconds(0), glance) : glance;
}

Moved IoRig::run(RequestSource& source, std::optional<double> seconds) {
    PENSTOCK_CHECK(io_->idle(), "the last section has not ended");
    section_ = {.source = &source, .over = false, .bytes = 0, .running = 0, .error = {}};
    const Stopwatch watch;
    auto next_look = watch.begin();
    for (const auto& mover : movers_) start(*mover);
    while (section_.running > 0) {
        if (const auto stuck = io_->advance(start_what_is_due())) throw Error(ExitCode::storage, stuck->message());
        const auto now = Clock::now();
        if (seconds && std::chrono::duration<double>(now - watch.begin()).count() >= *seconds) section_.over = true;
        if (now < next_look) continue;
        next_look = now + glance;
        if (asking_) asking_();
    }
    const Moved moved = watch.stop(section_.bytes);
    if (section_.error) throw Error(ExitCode::storage, section_.error->message());
    return moved;
}

Moved IoRig::run(std::span<const aio::TransferRequest> requests) {
    InTurn source(requests);
    return run(source);
}

}  // namespace penstock::zero
