// What a step's time is made of, and from how much compute on the NVMe is hidden behind it. Pure.
#pragma once

#include "aio/words/enum_words.h"
#include "zero_infinity/forecast/step_forecast.h"

#include <array>
#include <cstdint>

namespace penstock::zero {

enum class Bottleneck : std::uint8_t {
    nvme,
    processor,
    both,   // about equally
    order,  // of updates: the step takes clearly longer than either, which wait for each other
};
constexpr auto words_of(Bottleneck) noexcept {
    return std::array{Word{Bottleneck::nvme, "nvme"}, Word{Bottleneck::processor, "processor"},
                      Word{Bottleneck::both, "both"}, Word{Bottleneck::order, "order"}};
}

struct StepLanes {
    double nvme = 0;       // seconds that its bytes take at least
    double processor =
        0;  // seconds of compute, updates, what they lose to the NVMe and, without a core of its own, the driver
    Bottleneck bottleneck = Bottleneck::both;
    // So many times the compute takes as long as the NVMe; 0: none is needed.
    double hiding_compute = 0;
};

// REQUIRES: rates are positive, the step computes.
StepLanes lanes_of(const StepForecast& step, const HostSeconds& host, const DeviceRates& rates);

}  // namespace penstock::zero
