// A backend that misbehaves as devices and kernels do, from a seed, over any other backend.
#pragma once

#include "aio/backend.h"

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace penstock {

// Chances per attempt in percent; the first that strikes decides.
struct FaultChances {
    int short_transfer =
        0;  // reads and writes: fewer bytes than asked; what a read did not count is overwritten with rubbish
    int no_bytes = 0;  // reads and writes: result 0
    int io_error = 0;  // EIO
    int no_space = 0;  // writes and flushes: ENOSPC
    int again = 0;     // EAGAIN, for `again_burst` attempts in a row
    int again_burst = 1;
    int interrupted = 0;  // EINTR
    int delay = 0;        // held back for some reaps, so that later ones come back first
};

struct FaultCounts {
    std::uint64_t short_transfers = 0;
    std::uint64_t fatal = 0;    // no_bytes, io_error, no_space: no retry may hide them
    std::uint64_t passing = 0;  // again, interrupted
    std::uint64_t delayed = 0;
};

class FaultyBackend final : public Backend {
   public:
    // `alignment_bytes`: of the file. Above 1, short counts need not be multiples of it, as on real devices.
    FaultyBackend(std::unique_ptr<Backend> inner, FaultChances chances, std::uint32_t alignment_bytes,
                  std::uint64_t seed);

    bool submit(Attempt& attempt) override;
    Attempt* reap(std::chrono::nanoseconds timeout) override;
    void wake() noexcept override { inner_->wake(); }
    std::size_t depth() const noexcept override { return inner_->depth(); }
    const char* name() const noexcept override { return "faulty"; }

    const FaultCounts& counts() const noexcept { return counts_; }

   private:
    struct Place : Attempt {  // what the inner backend is asked to do
        Attempt* outer = nullptr;
        std::uint32_t reported_bytes = 0;  // when short
        bool shortened = false;
        int delay = 0;
    };

    bool strikes(int percent) { return percent > 0 && static_cast<int>(random_() % 100) < percent; }
    int refusal(const Attempt& attempt, bool& no_bytes);
    void shorten(Place& place);
    void finish(Place& place);
    Attempt* release();

    std::unique_ptr<Backend> inner_;
    FaultChances chances_;
    std::uint32_t alignment_bytes_;
    std::mt19937_64 random_;
    int again_left_ = 0;
    FaultCounts counts_;
    std::vector<Place> places_;
    std::vector<Place*> free_;
    std::vector<Place*> ready_;
};

}  // namespace penstock
