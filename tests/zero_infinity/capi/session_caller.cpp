#include "tests/zero_infinity/capi/session_caller.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <utility>

namespace penstock::testing {
namespace {

constexpr std::int64_t table_shape[] = {70, 100};
constexpr std::int64_t matrix_shape[] = {50, 100};
constexpr std::int64_t vector_shape[] = {300};
constexpr std::int64_t nine_shape[] = {9};

penstock_status first_weights(std::uint32_t unit, std::uint32_t parameter, std::uint64_t first, std::uint64_t count,
                              float* values, penstock_error* error, void* user) {
    const auto& caller = *static_cast<const SessionCaller*>(user);
    for (std::uint64_t i = 0; i < count; ++i)
        values[i] = static_cast<float>((31 * unit + 17 * parameter + first + i) % 64) / 64;
    if (caller.first_status != PENSTOCK_OK) std::strcpy(error->message, "the file ends early");
    return caller.first_status;
}

}  // namespace

SessionCaller::SessionCaller(std::string directory) : directory_(std::move(directory)) {
    directories_[0] = directory_.c_str();
    first = {{.name = "table", .shape = table_shape, .dimensions = 2}};
    second = {{.name = "a", .shape = matrix_shape, .dimensions = 2, .group = 1},
              {.name = "fixed", .shape = vector_shape, .dimensions = 1, .frozen = 1},
              {.name = "b", .shape = nine_shape, .dimensions = 1}};
    last = {{.name = "scale", .unused = PENSTOCK_UNUSED_SKIPPED}};
    units = {{.name = "first", .parameters = first.data(), .parameter_count = first.size()},
             {.name = "second",
              .parameters = second.data(),
              .parameter_count = second.size(),
              .frozen_type = PENSTOCK_BF16,
              .resident = 1},
             {.name = "last",
              .parameters = last.data(),
              .parameter_count = last.size(),
              .borrowed = borrowed.data(),
              .borrowed_count = borrowed.size()}};
    const penstock_group group = {.learning_rate = 0.5, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    groups = {group, group};
    groups[1].learning_rate = 0.25;
    model = {.struct_bytes = sizeof model,
             .units = units.data(),
             .unit_count = units.size(),
             .unit_struct_bytes = sizeof(penstock_unit),
             .parameter_struct_bytes = sizeof(penstock_parameter),
             .groups = groups.data(),
             .group_count = groups.size(),
             .group_struct_bytes = sizeof(penstock_group)};
    options = {.struct_bytes = sizeof options,
               .directories = directories_,
               .directory_count = 1,
               .job = "caller",
               .tile_elements = 4096,
               .snapshots = 1,
               .codec = "plain_fp32",
               .gradient_type = PENSTOCK_FP32,
               .first_weights = first_weights,
               .user = this};
    step = {.struct_bytes = sizeof step,
            .groups = groups.data(),
            .group_count = groups.size(),
            .group_struct_bytes = sizeof(penstock_group)};
    report = {.struct_bytes = sizeof report};
}

penstock_status SessionCaller::open() {
    return penstock_session_open(&model, &options, &session, &error);
}

void SessionCaller::close() {
    EXPECT_EQ(penstock_session_close(std::exchange(session, nullptr), &error), PENSTOCK_OK) << error.message;
}

void SessionCaller::backward(float value, bool complete) {
    ASSERT_EQ(penstock_session_begin_pass(session, PENSTOCK_TRAINING, &error), PENSTOCK_OK) << error.message;
    for (std::uint32_t unit = 3; unit-- > 0;) {
        penstock_unit_memory memory{};
        ASSERT_EQ(penstock_session_visit(session, &unit, 1, nullptr, 0, &memory, &error), PENSTOCK_OK) << error.message;
        ASSERT_NE(memory.trainable, nullptr);
        for (std::uint32_t parameter = 0; parameter < 4; ++parameter) {
            penstock_gradient sum = {.struct_bytes = sizeof sum};
            if (penstock_session_open_gradient(session, unit, parameter, &sum, &error) != PENSTOCK_OK) continue;
            auto* data = static_cast<float*>(sum.data);
            for (std::uint64_t i = 0; i < sum.numel; ++i) data[i] = (sum.fresh != 0 ? 0 : data[i]) + value;
        }
        if (complete) {
            ASSERT_EQ(penstock_session_complete(session, unit, &error), PENSTOCK_OK) << error.message;
        }
    }
    ASSERT_EQ(penstock_session_end_pass(session, &error), PENSTOCK_OK) << error.message;
}

penstock_status SessionCaller::update(std::uint64_t number) {
    step.step = number;
    return penstock_session_update(session, &step, &report, &error);
}

std::vector<float> SessionCaller::read(std::uint32_t unit, std::uint32_t parameter, penstock_what what) {
    penstock_place place = {.struct_bytes = sizeof place};
    EXPECT_EQ(penstock_session_place(session, unit, parameter, &place, &error), PENSTOCK_OK) << error.message;
    std::vector<float> values(place.numel);
    EXPECT_EQ(penstock_session_read(session, unit, parameter, what, values.data(), 4 * place.numel, &error),
              PENSTOCK_OK)
        << error.message;
    return values;
}

}  // namespace penstock::testing
