// Every way to hold and to update a model that a client can choose, each of which gives the same bits.
#pragma once

#include "tests/seeds.h"
#include "tests/zero_infinity/update_way.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/plan/core_options.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock::testing {

enum class Held : std::uint8_t { nvme, host, weights_in_host, filled };

struct Combination {
    Held held = Held::nvme;
    zero::UpdateWay order = zero::UpdateWay::after_backward;
    std::uint64_t accumulation = 1;
    std::uint32_t depth = 1;  // of the prefetch
    zero::DeviceKind device = zero::DeviceKind::cpu;
    bool clips = false;
    zero::GradientTier gradients = zero::GradientTier::host;

    zero::Residency residency() const {
        if (held == Held::host) return {zero::Tier::host, zero::Tier::host};
        return {held == Held::weights_in_host ? zero::Tier::host : zero::Tier::nvme, zero::Tier::nvme};
    }
    std::string name() const {
        constexpr std::array<const char*, 4> words = {"nvme", "host", "weights_in_host", "filled"};
        return fmt::format("{}, gradients {}, {}, {} passes, depth {}, {}{}", words.at(static_cast<std::size_t>(held)),
                           word_of(gradients), word_of(order), accumulation, depth, word_of(device),
                           clips ? ", clipped" : "");
    }
};

// The long form (--runs=N, of N steps) tries each of 8 depths with all else, the usual one some depth with all else.
inline std::uint64_t combined_steps() {
    return seed_options().runs.value_or(6);
}

inline std::vector<Combination> combinations(const std::vector<zero::DeviceKind>& devices) {
    using zero::UpdateWay;
    std::vector<Combination> all;
    std::uint32_t turn = 0;
    const auto add = [&](Combination each) {
        if (each.order == UpdateWay::within && each.clips) return;
        if (each.order == UpdateWay::speculative && each.held != Held::nvme) return;
        if (each.order == UpdateWay::balanced && each.clips && each.held != Held::nvme) return;
        // Gradients leave host memory where room is short: not beside all else in it.
        if (each.gradients == zero::GradientTier::nvme &&
            (each.held == Held::host || each.held == Held::weights_in_host))
            return;
        ++turn;
        for (each.depth = 1; each.depth <= 8; ++each.depth)
            if (seed_options().runs || each.depth == 1 + turn % 8) all.push_back(each);
    };
    for (const Held held : {Held::nvme, Held::host, Held::weights_in_host, Held::filled})
        for (const auto& [order, _] : words_of(UpdateWay{}))
            for (const std::uint64_t accumulation : {1, 4})
                for (const zero::DeviceKind device : devices)
                    for (const bool clips : {false, true})
                        for (const zero::GradientTier gradients : {zero::GradientTier::host, zero::GradientTier::nvme})
                            add({held, order, accumulation, 1, device, clips, gradients});
    return all;
}

}  // namespace penstock::testing
