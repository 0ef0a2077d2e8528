// A board in memory that the threads of one process share: with moods of its own, and an end.
#pragma once

#include "zero_infinity/ranks/board.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>

namespace penstock::testing {

class MemoryBoard final : public zero::Board {
   public:
    explicit MemoryBoard(std::uint64_t seed = 0, std::chrono::microseconds most_delay = {});

    void put(const std::string& key, const std::string& value) override;
    std::string put_first(const std::string& key, const std::string& value) override;
    std::optional<std::string> get(const std::string& key) override;

    void lose() { lost_ = true; }  // any thread
    std::uint64_t calls() const { return calls_; }

   private:
    void come();

    std::mutex mutex_;
    std::mt19937_64 moods_;
    std::chrono::microseconds most_delay_;
    std::map<std::string, std::string> texts_;
    std::atomic<bool> lost_ = false;
    std::atomic<std::uint64_t> calls_ = 0;
};

}  // namespace penstock::testing
