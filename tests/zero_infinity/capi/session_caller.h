// A program that calls a session by its C interface: a small model, what it is told, and a step of it.
#pragma once

#include "tests/temporary_directory.h"
#include "zero_infinity/capi/penstock_session.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::testing {

// The model: "first" (a table of 70 × 100), "second" (a matrix of 50 × 100, a frozen vector of 300, nine more) and
// "last", a scalar that borrows the table. Structures may be changed before open().
class SessionCaller {
   public:
    explicit SessionCaller(std::string directory);
    ~SessionCaller() { close(); }
    SessionCaller(const SessionCaller&) = delete;
    SessionCaller& operator=(const SessionCaller&) = delete;

    penstock_status open();
    void close();
    // Visits all units from the last to the first and adds `value` to each gradient; `complete`: says of each that it
    // is.
    void backward(float value, bool complete = false);
    penstock_status update(std::uint64_t number);
    std::vector<float> read(std::uint32_t unit, std::uint32_t parameter, penstock_what what = PENSTOCK_WEIGHT);

    std::vector<penstock_parameter> first, second, last;
    std::vector<penstock_parameter_id> borrowed = {{0, 0}};
    std::vector<penstock_unit> units;
    std::vector<penstock_group> groups;
    penstock_model model{};
    penstock_session_options options{};
    penstock_step step{};
    penstock_step_report report{};
    penstock_session* session = nullptr;
    penstock_error error{};
    penstock_status first_status = PENSTOCK_OK;  // of the function that gives the first weights

   private:
    std::string directory_;
    const char* directories_[1];
};

#define EXPECT_OK(call) EXPECT_EQ(call, PENSTOCK_OK) << caller.error.message
#define ASSERT_OK(call) ASSERT_EQ(call, PENSTOCK_OK) << caller.error.message

// A call that was refused, with these words in its message.
struct Refused {
    SessionCaller& caller;
    void operator()(penstock_status status, const char* text) const {
        EXPECT_EQ(status, PENSTOCK_USAGE) << text;
        EXPECT_NE(std::string(caller.error.message).find(text), std::string::npos) << caller.error.message;
    }
};

class CallerTest : public ::testing::Test {
   protected:
    std::string path() const { return parent_ / "store"; }
    const TemporaryDirectory parent_;
};

}  // namespace penstock::testing
