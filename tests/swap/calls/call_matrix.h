// Every call of every scene fails in every way that it can: what comes of it. A library without GoogleTest.
#pragma once

#include "tests/swap/calls/call_scene.h"
#include "tests/temporary_directory.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace penstock::testing {

enum class CallVerdict : std::uint8_t {
    missed,      // the call was not made this time: threads went another way
    unaffected,  // done, right, and there afterwards
    refused,     // by a message that names what, where and what to do; all is there that was reported
    vague,       // refused, but the message names no place or no remedy, or says that the store is to be removed
    silent,      // reported as done, and it is not
    lost,        // afterwards something that was reported is not there, or what was refused cannot be done
    leaking,     // descriptors stay open that nobody has
    hung,
    aborted,
};
inline constexpr std::size_t verdict_count = 9;
const char* to_string(CallVerdict verdict) noexcept;

struct CallTally {
    std::uint64_t calls = 0;   // in the scene without a fault
    std::uint64_t places = 0;  // in the code that made them
    std::uint64_t cases = 0;   // tried
    std::uint64_t of_all = 0;  // there are
    std::array<std::uint64_t, verdict_count> by_verdict{};
    std::uint64_t bad() const;
    CallTally& operator+=(const CallTally& other);
};

class CallMatrix {
   public:
    explicit CallMatrix(const CallScene& scene);

    // All there are, in an order drawn from the seed.
    std::vector<CallFault> faults(std::uint64_t seed) const;
    // A line on what is wrong; empty when it was survived or named.
    std::string run(const CallFault& fault);
    const CallTally& tally() const noexcept { return tally_; }
    // What was refused with, and how often: paths and numbers left out.
    const std::map<std::string, std::uint64_t>& refusals() const noexcept { return refusals_; }

   private:
    struct Ended {
        CallVerdict verdict = CallVerdict::aborted;
        std::string words;
    };
    Ended try_fault(const CallFault& fault);
    void restore() const;

    const CallScene& scene_;
    TemporaryDirectory scratch_;
    WatchedCalls without_;  // a fault
    CallTally tally_;
    std::map<std::string, std::uint64_t> refusals_;
};

}  // namespace penstock::testing
