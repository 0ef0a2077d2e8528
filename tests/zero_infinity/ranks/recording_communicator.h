// Tells what is asked of one rank's communicator, in which order.
#pragma once

#include "zero_infinity/ranks/communicator.h"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::testing {

class RecordingCommunicator final : public zero::Communicator {
   public:
    std::uint32_t rank() const noexcept override { return 0; }
    std::uint32_t ranks() const noexcept override { return 1; }
    void all_gather(std::string_view what, std::span<const std::byte> mine, std::span<std::byte> all) override {
        log.emplace_back(what);
        newest.assign(mine.begin(), mine.end());
        if (watch) watch();
        alone_.all_gather(what, mine, all);
    }

    std::vector<std::string> log;   // others may add to it
    std::function<void()> watch;    // called at each entry of ours
    std::vector<std::byte> newest;  // what this rank gave

   private:
    zero::LocalCommunicator alone_;
};

}  // namespace penstock::testing
