// Kills its own process at a chosen attempt of a backend: a point that a clock would seldom hit.
#pragma once

#include "tests/aio/fakes/forwarding_backend.h"
#include "tests/swap/kills/kill_life.h"

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

namespace penstock::testing {

struct KillPoint {
    enum class Of : std::uint8_t {
        all,      // counts every attempt
        commits,  // counts flushes and writes while a commit is under way
    };
    enum class How : std::uint8_t {
        before,       // it never reaches the kernel
        handed_over,  // the kernel has just been given it
        torn,         // of each write that is not back yet, a part of the sectors reaches the disk
        done,         // it is complete, but nobody was told
    };
    Of of = Of::all;
    How how = How::before;
    std::uint64_t nth = 1;   // from 1
    std::uint64_t seed = 0;  // of the tear
};

// One thread, as any backend. Passes on what it hears.
class KillBackend final : public ForwardingBackend, public KillListener {
   public:
    KillBackend(std::unique_ptr<aio::Backend> inner, const KillPoint& point, KillListener& listener);

    void hear(std::span<const Told> messages) override;

    bool submit(aio::Attempt& attempt) override;
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override;
    const char* name() const noexcept override { return "kill"; }

   private:
    bool is_counted(const aio::Attempt& attempt) const;
    void tear(const aio::Attempt& attempt);
    [[noreturn]] void strike();

    KillPoint point_;
    KillListener& listener_;
    std::mt19937_64 random_;
    bool committing_ = false;
    std::vector<const aio::Attempt*> in_flight_;
    std::uint64_t count_ = 0;
    const aio::Attempt* last_ = nullptr;  // strikes when this one is done
};

}  // namespace penstock::testing
