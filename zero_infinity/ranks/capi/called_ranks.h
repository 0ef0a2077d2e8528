// All that a C program gives a session of one rank of several.
#pragma once

#include "zero_infinity/ranks/capi/board_calls.h"
#include "zero_infinity/ranks/capi/transport_calls.h"

#include <memory>
#include <optional>

namespace penstock::zero {

class CalledRanks {
   public:
    explicit CalledRanks(const penstock_ranks* given) : calls_(given) {
        if (calls_.has_board()) board_.emplace(calls_);
    }
    CalledTransport& control() noexcept { return control_; }
    CalledTransport& bulk() noexcept { return bulk_; }
    Board* board() noexcept { return board_ ? &*board_ : nullptr; }  // null: none was given

   private:
    RankCalls calls_;
    CalledTransport control_{calls_, PENSTOCK_CONTROL};
    CalledTransport bulk_{calls_, PENSTOCK_BULK};
    std::optional<CalledBoard> board_;
};

// Null: of NULL, and of one rank, of which nothing is called.
inline std::unique_ptr<CalledRanks> called_ranks(const penstock_ranks* given) {
    if (given == nullptr) return nullptr;
    auto called = std::make_unique<CalledRanks>(given);
    return called->control().ranks() == 1 ? nullptr : std::move(called);
}

}  // namespace penstock::zero
