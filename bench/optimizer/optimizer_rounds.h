// Rounds of `penstock bench optimizer` at one number of threads, and what they say.
#pragma once

#include "bench/harness/memory_work.h"
#include "bench/harness/report.h"
#include "bench/optimizer/optimizer_peers.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace penstock::bench {

class Interruption;

struct OptimizerContender {
    std::string name;
    std::unique_ptr<MemoryWork> work;
};

// Triads, plain optimizers, AdamW in its codecs.
std::vector<OptimizerContender> make_optimizer_contenders(std::uint64_t numel);
// Of all of them together, generously.
std::uint64_t optimizer_contenders_bytes(std::uint64_t numel);
// How bytes are counted, for people.
extern const char* const how_optimizer_bytes_are_counted;

struct OptimizerRoundsOptions {
    unsigned rounds = static_cast<unsigned>(min_rounds);
    double seconds = 0.25;  // of each contender in each round
    std::uint64_t numel = 16U << 20;
    std::string python;  // of the peers; none when empty
};

class OptimizerRounds {
   public:
    // Both outlive it.
    OptimizerRounds(const OptimizerRoundsOptions& options, std::vector<OptimizerContender>& contenders,
                    unsigned threads);

    // The contenders take turns, all peers together one of them. Throws Error (internal, interrupted).
    void measure(Interruption& stop);
    void report(Report& report) const;

   private:
    // One contender's rounds.
    struct Timing {
        std::string name;
        std::uint64_t bytes_of_step = 0;
        std::vector<double> seconds;  // of a step
    };
    void add_peers(const PeerTimes& times);
    void compare_with_others(Report& report) const;
    const Timing& find(const char* name) const;
    Figure rate(const Timing& timing) const;
    Figure time_ratio(const Timing& above, const Timing& below) const;

    const OptimizerRoundsOptions& options_;
    std::vector<OptimizerContender>& contenders_;
    zero::Workers workers_;
    const std::string threads_;  // how names of figures end
    std::vector<Timing> ours_, peers_;
    std::vector<std::string> notes_;
};

}  // namespace penstock::bench
