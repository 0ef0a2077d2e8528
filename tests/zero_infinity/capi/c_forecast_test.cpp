// How long a step will take, as C programs are told.
#include "tests/zero_infinity/capi/session_caller.h"
#include "zero_infinity/capi/penstock_forecast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

// A machine that nobody measured.
penstock_rates some_rates() {
    penstock_rates rates{};
    rates.struct_bytes = sizeof rates;
    rates.read = 1e6;
    rates.write = 2e6;
    rates.both = 1.5e6;
    rates.flush_seconds = 0.001;
    rates.submit_per_byte = 1e-10;
    rates.hash_per_byte = 1e-10;
    rates.update_per_element = 1e-6;
    rates.norm_per_element = 1e-8;
    rates.threads = 1;
    rates.cores = 2;
    return rates;
}

class CForecastTest : public CallerTest {
   protected:
    CForecastTest() : caller(path()) {
        compute.struct_bytes = sizeof compute;
        compute.seconds = seconds.data();
        compute.visit_count = seconds.size();
        compute.forward_count = 2;
    }
    penstock_status ask() { return ask(penstock_forecast{.struct_bytes = sizeof(penstock_forecast)}); }
    penstock_status ask(const penstock_forecast& place) {
        forecast = place;
        return penstock_session_forecast(&caller.model, &caller.options, &rates, &compute, &forecast, &caller.error);
    }
    void refused(const char* text) {
        EXPECT_EQ(ask(), PENSTOCK_USAGE) << text;
        EXPECT_NE(std::string(caller.error.message).find(text), std::string::npos) << caller.error.message;
    }

    SessionCaller caller;
    std::vector<double> seconds = {0.1, 0.2, 0.4, 0.8, 1.6};  // there and back again: three units
    penstock_rates rates = some_rates();
    penstock_compute compute{};
    penstock_forecast forecast{};
};

TEST_F(CForecastTest, TheStepIsTheSumOfItsPartsAndTakesWhatComputeTakesAtLeast) {
    compute.rest_seconds = 0.25;
    for (const penstock_update_order order : {PENSTOCK_AFTER_BACKWARD, PENSTOCK_DEFERRED, PENSTOCK_IN_BACKWARD}) {
        caller.options.update_order = order;
        ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
        EXPECT_NEAR(forecast.seconds,
                    forecast.forward_seconds + forecast.backward_seconds + forecast.after_seconds +
                        forecast.commit_seconds + compute.rest_seconds,
                    1e-9);
        EXPECT_NEAR(forecast.compute_seconds, 3.1 + 12010 * rates.norm_per_element, 1e-5);
        EXPECT_GE(forecast.seconds, forecast.compute_seconds + forecast.update_seconds);
        EXPECT_GE(forecast.processor_seconds, forecast.compute_seconds + forecast.update_seconds);
        EXPECT_GE(forecast.seconds, forecast.nvme_seconds);
        EXPECT_NE(std::string(forecast.text).find("decides"), std::string::npos) << forecast.text;
    }
    EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(CForecastTest, ItsBytesAreThoseOfThePlan) {
    penstock_plan plan = {.struct_bytes = sizeof plan};
    ASSERT_EQ(penstock_session_plan(&caller.model, &caller.options, &plan, &caller.error), PENSTOCK_OK);
    ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    EXPECT_NEAR(forecast.read_bytes, static_cast<double>(plan.read_bytes), 1);
    EXPECT_NEAR(forecast.write_bytes, static_cast<double>(plan.write_bytes + plan.resident_write_bytes), 1);
    compute.passes = 3;  // before one update
    ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    EXPECT_GE(forecast.read_bytes, static_cast<double>(plan.read_bytes) - 1);
    EXPECT_NEAR(forecast.write_bytes, static_cast<double>(plan.write_bytes + plan.resident_write_bytes), 1);
    EXPECT_NEAR(forecast.compute_seconds, 3 * 3.1 + 12010 * rates.norm_per_element, 1e-5);
}

TEST_F(CForecastTest, WithoutComputeOnlyWhatIsKnownIsSaid) {
    ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    const penstock_forecast whole = forecast;
    compute.visit_count = 0;
    ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    EXPECT_EQ(forecast.nvme_seconds, whole.nvme_seconds);
    EXPECT_EQ(forecast.update_seconds, whole.update_seconds);
    EXPECT_EQ(forecast.seconds, 0);
    EXPECT_EQ(forecast.compute_seconds, 0);
    EXPECT_EQ(forecast.written_bytes_per_day, 0);
    EXPECT_STREQ(forecast.text, "");
}

TEST_F(CForecastTest, TokensAndEnduranceAreTakenIntoAccountWhereTheyAreKnown) {
    compute.tokens = 128;
    compute.endurance_bytes = 1e12;
    rates.read = rates.write = rates.both = 1e4;
    ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    EXPECT_EQ(forecast.bottleneck, PENSTOCK_BOUND_BY_NVME);
    EXPECT_NEAR(forecast.tokens_that_hide_nvme, 128 * forecast.hiding_compute, 1e-6);
    EXPECT_GT(forecast.hiding_compute, 1);
    EXPECT_NEAR(forecast.days_to_endurance * forecast.written_bytes_per_day, 1e12, 1);
}

TEST_F(CForecastTest, VisitsAreTheClientsOwnWithTheOwnersOfWhatTheyBorrow) {
    const std::uint32_t units[] = {0, 1, 2, 0};
    const penstock_visit visits[] = {{units, 1},     {units + 1, 1}, {units + 2, 1},
                                     {units + 2, 1}, {units + 1, 1}, {units + 3, 1}};
    seconds.push_back(0.5);
    compute.visits = visits;
    compute.seconds = seconds.data();
    compute.visit_count = 6;
    compute.forward_count = 3;
    ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    EXPECT_NEAR(forecast.compute_seconds, 3.6 + 12010 * rates.norm_per_element, 1e-5);
    compute.visit_count = 5;  // of six that the model was not asked for
    compute.visits = nullptr;
    EXPECT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
}

TEST_F(CForecastTest, WhatIsLaidAsideMovesWhereItFindsNoRoom) {
    ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    const penstock_forecast without = forecast;
    const std::size_t taken[] = {3, 4};
    const penstock_laid laid[] = {{.turn = 9, .bytes = 8192, .laid_in = 0, .taken_in = taken + 1, .taken_count = 1},
                                  {.turn = 7, .bytes = 8192, .laid_in = 1, .taken_in = taken, .taken_count = 1}};
    compute.laid = laid;
    compute.laid_count = 2;
    ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    EXPECT_EQ(forecast.write_bytes, without.write_bytes) << "there is no budget, so nothing is laid aside";
    caller.options.activation_budget_bytes = 8192;
    ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    EXPECT_NEAR(forecast.write_bytes, without.write_bytes + 8192, 1e-3);
    EXPECT_NEAR(forecast.read_bytes, without.read_bytes + 8192, 1e-3);
    EXPECT_GT(forecast.wait_spills_seconds, 0);
    EXPECT_GT(forecast.seconds, without.seconds);
    for (const std::uint64_t lacking : {4096, 4095}) {  // the pool has whole granules
        caller.options.activation_budget_bytes = lacking;
        EXPECT_EQ(ask(), PENSTOCK_DOES_NOT_FIT);
    }
    caller.options.activation_budget_bytes = 4097;
    EXPECT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    caller.options.activation_budget_bytes = 4096;
    EXPECT_EQ(ask(), PENSTOCK_DOES_NOT_FIT);
    EXPECT_NE(std::string(caller.error.message).find("activations"), std::string::npos) << caller.error.message;
}

// What several units are given is read again for each of them, where its room is another's meanwhile.
TEST_F(CForecastTest, WhatIsTakenSeveralTimesMayComeSeveralTimes) {
    const std::size_t taken[] = {2, 3, 4};
    const penstock_laid laid[] = {{.turn = 9, .bytes = 8192, .laid_in = 0, .taken_in = taken, .taken_count = 3},
                                  {.turn = 8, .bytes = 8192, .laid_in = 0, .taken_in = taken, .taken_count = 3}};
    compute.laid = laid;
    compute.laid_count = 2;
    caller.options.activation_budget_bytes = 8192;
    ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    const penstock_forecast often = forecast;
    compute.laid_count = 1;
    ASSERT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
    EXPECT_GE(often.read_bytes, forecast.read_bytes + 4 * 8192);
    EXPECT_LE(often.write_bytes, forecast.write_bytes + 2 * 8192) << "what NVMe has, it keeps";
}

TEST_F(CForecastTest, WhatIsLaidAsideIsChecked) {
    const std::size_t taken[] = {3, 4, 5};
    penstock_laid laid[] = {{.turn = 9, .bytes = 8192, .laid_in = 0, .taken_in = taken + 1, .taken_count = 1},
                            {.turn = 7, .bytes = 8192, .laid_in = 1, .taken_in = taken, .taken_count = 2}};
    compute.laid_count = 2;
    refused("compute.laid is NULL");
    compute.laid = laid;
    laid[1].turn = 9;
    refused("turn 9 twice");
    laid[1].turn = 7;
    laid[1].bytes = 0;
    refused("compute.laid[1] has no bytes");
    laid[1].bytes = 1;
    laid[1].laid_in = 3;
    refused("laid aside in visit 3 and taken in 3 of 5");
    laid[1].laid_in = 1;
    laid[1].taken_count = 3;
    refused("taken in 5 of 5");
    laid[1].taken_count = 0;
    refused("compute.laid[1] is never taken");
    laid[1].taken_count = 1;
    laid[1].bytes = UINT64_MAX;
    caller.options.activation_budget_bytes = 1 << 20;
    EXPECT_EQ(ask(), PENSTOCK_DOES_NOT_FIT);
}

TEST_F(CForecastTest, WhatCannotBeIsRefusedAndNothingIsWritten) {
    compute.visit_count = 4;
    refused("seconds of 4 visits");
    compute.visit_count = seconds.size();
    compute.forward_count = 6;
    refused("6 are forward");
    compute.forward_count = 2;
    for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
        seconds[1] = wrong;
        refused("a visit of");
        seconds[1] = 0;
        compute.rest_seconds = wrong;
        refused("rest_seconds");
        compute.rest_seconds = 0;
        rates.read = wrong;
        refused("rates of a device");
        rates = some_rates();
        rates.norm_per_element = wrong;
        refused("a time of");
        rates = some_rates();
    }
    rates.read = 0;
    refused("penstock_session_measure");
    rates = some_rates();
    for (const double wrong : {-1.0, 1.5}) {
        rates.contended_compute = wrong;
        refused("kept");
        rates.contended_compute = 0;
    }
    rates.cores = 0;
    refused("0 cores");
    rates = some_rates();
    compute.seconds = nullptr;
    refused("NULL");
    compute.seconds = seconds.data();
    compute.struct_bytes = 8;
    refused("compute");
    compute.struct_bytes = sizeof compute;
    const std::uint32_t unit = 3;
    const penstock_visit visits[5] = {{&unit, 1}};
    compute.visits = visits;
    refused("a visit of unit 3");
    compute.visits = nullptr;
    caller.options.device = PENSTOCK_EMULATED;
    caller.options.device_budget_bytes = 64U << 20;
    refused("memory of its own");
    caller.options.device = PENSTOCK_CPU;
    EXPECT_EQ(ask(penstock_forecast{.struct_bytes = 16, .seconds = 7}), PENSTOCK_USAGE);
    EXPECT_EQ(forecast.seconds, 7);
    caller.options.host_budget_bytes = 4096;
    EXPECT_EQ(ask(), PENSTOCK_DOES_NOT_FIT);
}

TEST_F(CForecastTest, RatesAreMeasuredNearADirectoryThatIsNotThereYetAndNothingStays) {
    EXPECT_EQ(penstock_session_measure(&caller.model, &caller.options, 0.01, &rates, &caller.error), PENSTOCK_OK)
        << caller.error.message;
    EXPECT_GT(rates.read, 0);
    EXPECT_GT(rates.write, 0);
    EXPECT_GT(rates.both, 0);
    EXPECT_GT(rates.flush_seconds, 0);
    EXPECT_GT(rates.submit_per_byte, 0);
    EXPECT_GT(rates.hash_per_byte, 0);
    EXPECT_GT(rates.update_per_element, 0);
    EXPECT_GT(rates.norm_per_element, 0);
    EXPECT_EQ(rates.threads, 1U);
    EXPECT_GE(rates.cores, 1U);
    EXPECT_EQ(rates.places, parent_.path());
    EXPECT_NE(std::string(rates.text).find("measured"), std::string::npos);
    EXPECT_TRUE(std::filesystem::is_empty(parent_.path()));
    EXPECT_EQ(ask(), PENSTOCK_OK) << caller.error.message;
}

TEST_F(CForecastTest, WhatCannotBeMeasuredIsRefused) {
    const auto measure = [&](double of) {
        return penstock_session_measure(&caller.model, &caller.options, of, &rates, &caller.error);
    };
    for (const double wrong : {-1.0, 61.0, std::nan("")}) EXPECT_EQ(measure(wrong), PENSTOCK_USAGE) << wrong;
    EXPECT_EQ(penstock_session_measure(&caller.model, &caller.options, 0.01, nullptr, &caller.error), PENSTOCK_USAGE);
    const char* nowhere[] = {"/proc/self/penstock"};
    caller.options.directories = nowhere;
    EXPECT_NE(measure(0.01), PENSTOCK_OK);
    EXPECT_NE(std::string(caller.error.message).find("/proc/self"), std::string::npos) << caller.error.message;
}

}  // namespace
}  // namespace penstock::testing
