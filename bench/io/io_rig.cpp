#include "bench/io/io_rig.h"

#include "aio/file.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "bench/harness/interruption.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

namespace penstock::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* use_name = "transfers";

// fio writes random bytes as well: a drive that compresses gains nothing.
void fill_random(std::span<std::byte> memory, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::size_t at = 0;
    for (; at + sizeof(std::uint64_t) <= memory.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        std::copy_n(reinterpret_cast<const std::byte*>(&word), sizeof(word), memory.data() + at);
    }
}

std::unique_ptr<pool::PinnedPool> make_pool(const std::vector<std::size_t>& lease_bytes) {
    std::uint64_t bytes = 0;
    for (const std::size_t one : lease_bytes) bytes += pool::whole_granules(one);
    pool::Budget budget(bytes + pool::huge_page_bytes, "--size");  // room for the last huge page to be whole
    budget.add({use_name, bytes, "--size"});
    return std::make_unique<pool::PinnedPool>(budget, pool::MachineMemory::read(), pool::PoolOptions{});
}

}  // namespace

struct IoRig::Mover final : aio::Transfer {
    Mover(IoRig& its_rig, std::size_t its_slot) : rig(its_rig), slot(its_slot) {}
    void done() noexcept override { rig.ended(*this); }
    IoRig& rig;
    std::size_t slot;
};

aio::IoLimits plain_limits(std::uint32_t block_bytes, std::uint64_t in_flight_bytes) {
    aio::IoLimits limits;
    limits.chunk_bytes = block_bytes;
    limits.in_flight.prefetch_bytes = in_flight_bytes;
    limits.in_flight.scrub_bytes = block_bytes;
    limits.in_flight.read_bytes = in_flight_bytes + block_bytes;
    limits.in_flight.write_back_bytes = in_flight_bytes;
    limits.in_flight.throttled_bytes = in_flight_bytes;
    limits.in_flight.write_bytes = in_flight_bytes;
    return limits;
}

IoRig::IoRig(const aio::File& file, const RigOptions& options) : pool_(make_pool(options.lease_bytes)) {
    notes_ = pool_->notes();
    const pool::UseId use = pool_->use(use_name);
    for (const std::size_t bytes : options.lease_bytes) {
        leases_.push_back(pool_->acquire(use, bytes));
        fill_random(leases_.back().span(), leases_.size());
        movers_.push_back(std::make_unique<Mover>(*this, movers_.size()));
    }
    const std::uint64_t places = std::max(options.limits.in_flight.read_bytes, options.limits.in_flight.write_bytes) /
                                 options.limits.chunk_bytes;
    aio::ChosenBackend chosen =
        open_backend(file.fd(), {.depth = std::max<std::size_t>(64, 2 * places)}, options.backend);
    if (!chosen.note.empty()) notes_.push_back(chosen.note);
    if (!file.direct()) notes_.push_back(file.fallback());
    io_ = std::make_unique<aio::Io>(std::move(chosen.backend), options.limits);
    if (options.registration == RingRegistration::wanted) register_all(file);
}

void IoRig::register_all(const aio::File& file) {
    const std::string memory_refused = io_->register_memory(pool_->ring_ranges());
    registered_memory_ = memory_refused.empty();
    if (!registered_memory_) notes_.push_back("memory is not registered with the ring: " + memory_refused);
    const std::array<const aio::File*, 1> files = {&file};
    const std::string file_refused = io_->register_files(files);
    registered_file_ = file_refused.empty();
    if (!registered_file_) notes_.push_back("the file is not registered with the ring: " + file_refused);
}

IoRig::~IoRig() {
    section_.over = true;
    io_.reset();  // decides what is lost
    for (const auto& mover : movers_) {
        if (mover->orphaned()) leases_[mover->slot].orphan();
    }
}

void IoRig::start(Mover& mover) noexcept {
    aio::TransferRequest request;
    if (section_.over || !section_.source->next(mover.slot, request)) return;
    if (request.kind != aio::IoKind::flush) request.data = leases_[mover.slot].data();
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
    constexpr std::chrono::nanoseconds longest = std::chrono::milliseconds(100);
    auto later = section_.source->later();
    if (section_.over || !later) return longest;
    const auto now = Clock::now();
    if (later->at <= now) {
        start(*movers_[later->slot]);
        later = section_.source->later();
    }
    return later ? std::clamp<std::chrono::nanoseconds>(later->at - now, std::chrono::nanoseconds(0), longest)
                 : longest;
}

Moved IoRig::run(RequestSource& source, std::optional<double> seconds, Interruption& stop) {
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
        next_look = now + std::chrono::milliseconds(100);
        stop.check();
    }
    const Moved moved = watch.stop(section_.bytes);
    if (section_.error) throw Error(ExitCode::storage, section_.error->message());
    return moved;
}

}  // namespace penstock::bench
