// A board over the functions that a C program gives.
#pragma once

#include "zero_infinity/ranks/board.h"
#include "zero_infinity/ranks/capi/transport_calls.h"

namespace penstock::zero {

// The calls outlive it. REQUIRES: calls.has_board().
class CalledBoard final : public Board {
   public:
    explicit CalledBoard(const RankCalls& calls);

    void put(const std::string& key, const std::string& value) override;
    std::string put_first(const std::string& key, const std::string& value) override;
    std::optional<std::string> get(const std::string& key) override;

   private:
    const RankCalls* calls_;
};

}  // namespace penstock::zero
