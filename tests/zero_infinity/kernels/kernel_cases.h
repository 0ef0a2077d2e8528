// The updates of kernels.h with every condition that their factors can make, as calls of one shape.
#pragma once

#include "zero_infinity/kernels/kernels.h"

#include <functional>
#include <string>
#include <vector>

namespace penstock::test {

struct KernelCase {
    std::string name;
    int moments;
    std::function<void(const zero::Kernels&, const zero::UpdateSpan&)> decoded;
    std::function<zero::EncodedUpdate(const zero::Kernels&, const zero::EncodedSpan&)> encoded;
};

std::vector<KernelCase> kernel_cases();

}  // namespace penstock::test
