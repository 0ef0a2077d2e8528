// Where bytes of a model are kept between their uses.
#pragma once

#include "aio/words/enum_words.h"

#include <array>
#include <cstdint>

namespace penstock::zero {

enum class Tier : std::uint8_t { host, nvme };
constexpr auto words_of(Tier) noexcept {  // DeepSpeed's
    return std::array{Word{Tier::host, "cpu"}, Word{Tier::nvme, "nvme"}};
}

struct Residency {
    Tier weights = Tier::nvme;
    Tier states = Tier::nvme;
};

}  // namespace penstock::zero
