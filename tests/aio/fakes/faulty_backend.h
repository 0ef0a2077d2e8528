// A backend that misbehaves as devices and kernels do, from a seed, over any other backend.
#pragma once

#include "aio/backend.h"
#include "aio/words/io_error.h"
#include "tests/aio/fakes/scratch.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace penstock::aio {

// Chances per attempt in percent; the first that strikes decides.
struct FaultChances {
    // Reads and writes: fewer bytes than asked; what a read did not count is overwritten with rubbish.
    int short_transfer = 0;
    int no_bytes = 0;  // reads and writes: result 0
    int io_error = 0;  // EIO
    int no_space = 0;  // writes and flushes: ENOSPC
    int again = 0;     // EAGAIN, for `again_burst` attempts in a row
    int again_burst = 1;
    int interrupted = 0;  // EINTR
    int delay = 0;        // held back for some reaps, so that later ones come back first
    // A device that lies: success is reported. Nothing in aio can know; the store's hashes must.
    int wrong_read = 0;   // one bit of what was read is flipped
    int wrong_write = 0;  // one bit of what is stored
    int misdirected = 0;  // a write that lands at another place of the file
    int lost = 0;         // a write that lands nowhere
};

struct FaultCounts {
    std::uint64_t attempts = 0;
    std::uint64_t short_transfers = 0;
    std::uint64_t fatal = 0;    // no_bytes, io_error, no_space: no retry may hide them
    std::uint64_t passing = 0;  // again, interrupted
    std::uint64_t delayed = 0;
    std::uint64_t unaligned = 0;  // attempts that a direct file refuses: the caller's mistake, not a fault
    std::uint64_t wrong_reads = 0;
    std::uint64_t wrong_writes = 0;
    std::uint64_t misdirected = 0;
    std::uint64_t lost = 0;

    FaultCounts& operator+=(const FaultCounts& other);
    bool operator==(const FaultCounts&) const = default;
};

class FaultyBackend final : public Backend {
   public:
    // `alignment_bytes`: of the file. Above 1, short counts need not be multiples of it, as on real devices, and an
    // attempt at an odd offset or of an odd length ends with EINVAL, also where the real file system would take it.
    FaultyBackend(std::unique_ptr<Backend> inner, FaultChances chances, std::uint32_t alignment_bytes,
                  std::uint64_t seed);

    bool submit(Attempt& attempt) override;
    Attempt* reap(std::chrono::nanoseconds timeout) override;
    void wake() noexcept override { inner_->wake(); }
    Attempt* abandon() noexcept override;
    std::chrono::steady_clock::time_point now() const noexcept override { return inner_->now(); }
    std::string register_memory(std::span<const std::span<std::byte>> ranges) override {
        return inner_->register_memory(ranges);
    }
    std::string register_files(std::span<const RegisteredFile> files) override { return inner_->register_files(files); }
    std::size_t depth() const noexcept override { return inner_->depth(); }
    const char* name() const noexcept override { return "faulty"; }

    // From the next attempt on; none make it a sound device.
    void set_chances(const FaultChances& chances) {
        chances_ = chances;
        again_left_ = 0;
    }
    const FaultCounts& counts() const noexcept { return counts_; }
    // Where fatal faults struck: an error must be reported there.
    struct Fatal {
        IoKind kind = IoKind::read;
        std::uint64_t offset_bytes = 0;
    };
    const std::vector<Fatal>& fatal() const noexcept { return fatal_; }

   private:
    struct Place : Attempt {  // what the inner backend is asked to do
        Attempt* outer = nullptr;
        std::uint32_t reported_bytes = 0;  // when short
        bool shortened = false;
        int delay = 0;
        std::optional<std::uint64_t> flipped;  // a bit of what is read, before it is taken modulo the length
        std::optional<ScratchMemory> copy;     // what is written instead
    };

    bool strikes(int percent) { return percent > 0 && static_cast<int>(random_() % 100) < percent; }
    Place& place_for(Attempt& attempt);
    bool ends_here(Place& place);
    bool is_refused(Place& place);
    bool refuse(Place& place, int errno_value);
    void shorten(Place& place);
    bool lies(Place& place);
    void misdirect(Place& place);
    void finish(Place& place);
    Attempt* release();
    Attempt* give_back(Place& place, Attempt* list);

    std::unique_ptr<Backend> inner_;
    FaultChances chances_;
    std::uint32_t alignment_bytes_;
    std::mt19937_64 random_;
    int again_left_ = 0;
    FaultCounts counts_;
    std::vector<Fatal> fatal_;
    std::vector<Place> places_;
    std::vector<Place*> free_;
    std::vector<Place*> ready_;
};

}  // namespace penstock::aio
