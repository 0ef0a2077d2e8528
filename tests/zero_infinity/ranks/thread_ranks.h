// Ranks that are threads of one process: they meet at each call and copy what the others gave. With moods of their own,
// and with what can go wrong.
#pragma once

#include "zero_infinity/ranks/transport.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock::testing {

// What one rank does at its call `call`, which counts from 1.
struct Mishap {
    enum class Kind : std::uint8_t { none, dies, stops } kind = Kind::none;
    std::uint32_t rank = 0;
    std::uint64_t call = 0;
};

struct ThreadMoods {
    std::uint64_t seed = 0;  // of delays, each rank's own
    std::chrono::microseconds most_delay{0};
    std::chrono::milliseconds deadline{20'000};  // in which all come to a call
    Mishap mishap;
};

class ThreadRanks {
   public:
    explicit ThreadRanks(std::uint32_t ranks, ThreadMoods moods = {});
    ~ThreadRanks();

    zero::Transport& of(std::uint32_t rank);
    // The first two calls that met and were not the same, in words; empty: all were. A real library would hang, or
    // mix their bytes.
    std::string mismatch() const;
    std::uint64_t bytes_received(std::uint32_t rank) const;  // from others

   private:
    class World;
    class Rank;
    std::unique_ptr<World> world_;
    std::vector<std::unique_ptr<Rank>> all_;
};

// Runs `body` for each rank on a thread of its own, and what each threw: "" where it returned.
std::vector<std::string> run_ranks(std::uint32_t ranks, const std::function<void(std::uint32_t rank)>& body);

}  // namespace penstock::testing
