// Tells what is asked of one rank's communicator, in which order.
#pragma once

#include "zero_infinity/ranks/communicator.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

namespace penstock::testing {

class RecordingCommunicator final : public zero::Communicator {
   public:
    std::uint32_t rank() const noexcept override { return 0; }
    std::uint32_t ranks() const noexcept override { return 1; }
    void all_gather(std::span<const std::byte> shard, std::span<std::byte> all) override {
        record(fmt::format("all_gather {}", shard.size()));
        alone_.all_gather(shard, all);
    }
    void reduce_scatter(std::span<const std::byte> all, zero::PlaneType type, std::span<std::byte> shard) override {
        record(fmt::format("reduce_scatter {}", all.size()));
        alone_.reduce_scatter(all, type, shard);
    }
    void all_reduce(std::span<double> values) override {
        record(fmt::format("all_reduce {}", values.size()));
        alone_.all_reduce(values);
        sums.assign(values.begin(), values.end());
    }
    void broadcast(std::span<std::byte> bytes, std::uint32_t root) override {
        record(fmt::format("broadcast {}", bytes.size()));
        alone_.broadcast(bytes, root);
    }
    void barrier() override { record("barrier"); }

    std::vector<std::string> log;  // others may add to it
    std::function<void()> watch;   // called at each entry of ours
    std::vector<double> sums;      // of the newest all_reduce

   private:
    void record(std::string entry) {
        log.push_back(std::move(entry));
        if (watch) watch();
    }
    zero::LocalCommunicator alone_;
};

}  // namespace penstock::testing
