// What a C caller lays aside and takes again, and what it can do wrong there.
#include "tests/zero_infinity/capi/session_caller.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace penstock::testing {
namespace {

constexpr std::uint64_t granule = 4096;

class LaidAsideTest : public CallerTest {
   protected:
    void open(std::uint64_t granules) {
        caller.options.activation_budget_bytes = granules * granule;
        ASSERT_OK(caller.open());
    }
    void lay(std::uint64_t turn) {
        void* data = nullptr;
        ASSERT_OK(penstock_session_lay(caller.session, turn, granule, &data, &caller.error));
        std::fill_n(static_cast<unsigned char*>(data), granule, static_cast<unsigned char>(turn + 1));
    }
    void expect_there(std::uint64_t turn) {
        void* data = nullptr;
        ASSERT_OK(penstock_session_take(caller.session, turn, &data, &caller.error));
        const auto* bytes = static_cast<const unsigned char*>(data);
        EXPECT_TRUE(std::all_of(bytes, bytes + granule, [&](unsigned char each) { return each == turn + 1; })) << turn;
    }
    void drop(std::uint64_t turn) { EXPECT_OK(penstock_session_drop(caller.session, turn, &caller.error)); }
    penstock_session_info info() {
        penstock_session_info info{};
        info.struct_bytes = sizeof info;
        EXPECT_OK(penstock_session_get_info(caller.session, &info, &caller.error));
        return info;
    }

    SessionCaller caller{path()};
};

TEST_F(LaidAsideTest, WhatHasNoRoomGoesToNvmeAndComesBack) {
    open(4);
    for (std::uint64_t step = 1; step <= 3; ++step) {
        for (std::uint64_t turn = 12; turn-- > 0;) lay(turn);
        caller.backward(2);
        for (std::uint64_t turn = 0; turn < 12; ++turn) {
            expect_there(turn);
            drop(turn);
        }
        ASSERT_OK(caller.update(step));
    }
    EXPECT_EQ(info().laid_bytes, 3 * 12 * granule);
    EXPECT_GE(info().laid_away_bytes, 3 * 8 * granule);
    EXPECT_LT(info().laid_away_bytes, 3 * 12 * granule);
}

// It need not be dropped before the next is taken, nor taken in its turn, nor once only.
TEST_F(LaidAsideTest, WhatWasTakenStaysLaidAside) {
    open(3);
    std::vector<std::uint64_t> turns(9);
    std::iota(turns.begin(), turns.end(), 0);
    for (const std::uint64_t turn : turns) lay(turn);
    for (int time = 0; time < 3; ++time) {
        for (const std::uint64_t turn : turns) expect_there(turn);
        std::next_permutation(turns.begin(), turns.end());
        std::reverse(turns.begin() + time, turns.end());
    }
    for (const std::uint64_t turn : turns) drop(turn);
}

TEST_F(LaidAsideTest, WhatItIsWrongToAskForIsRefusedAndNothingHasChanged) {
    open(3);
    const Refused refused{caller};
    void* data = nullptr;
    lay(5);
    refused(penstock_session_lay(caller.session, 5, granule, &data, &caller.error),
            "two things are laid aside for turn 5");
    refused(penstock_session_lay(caller.session, 6, 0, &data, &caller.error), "0 bytes");
    refused(penstock_session_lay(caller.session, 6, 1, nullptr, &caller.error), "data is NULL");
    refused(penstock_session_take(caller.session, 6, &data, &caller.error), "nothing is laid aside for turn 6");
    refused(penstock_session_drop(caller.session, 6, &caller.error), "nothing is laid aside for turn 6");
    for (const std::uint64_t bytes : {std::uint64_t{4} * granule, UINT64_MAX - granule, UINT64_MAX})
        EXPECT_EQ(penstock_session_lay(caller.session, 6, bytes, &data, &caller.error), PENSTOCK_DOES_NOT_FIT);
    EXPECT_NE(std::string(caller.error.message).find("activation_budget_bytes"), std::string::npos)
        << caller.error.message;
    lay(6);
    expect_there(5);
    expect_there(6);
    drop(6);
    drop(5);
    refused(penstock_session_take(caller.session, 5, &data, &caller.error), "nothing is laid aside for turn 5");
}

TEST_F(LaidAsideTest, WithoutABudgetNothingIsLaidAside) {
    open(0);
    void* data = nullptr;
    Refused{caller}(penstock_session_lay(caller.session, 1, 1, &data, &caller.error),
                    "options.activation_budget_bytes is 0");
    EXPECT_EQ(info().laid_bytes, 0U);
}

}  // namespace
}  // namespace penstock::testing
