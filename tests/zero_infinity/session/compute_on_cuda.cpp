#include "tests/zero_infinity/device/fake_cudart.h"
#include "tests/zero_infinity/session/compute.h"

#include <gtest/gtest.h>

#include <utility>

namespace penstock::testing {

void begin_compute(unsigned seed) {
    fake_cudart::reset(seed);
}

void end_compute() {
    EXPECT_EQ(fake_cudart::misuses(), 0U);
    EXPECT_EQ(fake_cudart::live_objects(), 0U);
    EXPECT_EQ(fake_cudart::pending_error(), cudaSuccess);
}

void issue(std::function<void()> kernel) {
    fake_cudart::launch(std::move(kernel));
}

void finish_compute() {
    fake_cudart::run_all();
}

std::vector<zero::DeviceKind> devices() {
    return {zero::DeviceKind::cuda};
}

}  // namespace penstock::testing
