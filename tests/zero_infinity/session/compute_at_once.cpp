#include "tests/zero_infinity/session/compute.h"

namespace penstock::testing {

void begin_compute(unsigned /*seed*/) {}
void end_compute() {}

void issue(std::function<void()> kernel) {
    kernel();
}

void finish_compute() {}

std::vector<zero::DeviceKind> devices() {
    return {zero::DeviceKind::cpu, zero::DeviceKind::emulated};
}

}  // namespace penstock::testing
