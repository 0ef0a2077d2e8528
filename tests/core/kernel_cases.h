// The updates of kernels.h with every condition that their factors can make, as calls of one shape.
#pragma once

#include "zero_infinity/kernels.h"

#include <functional>
#include <string>
#include <vector>

namespace penstock::test {

struct KernelCase {
    std::string name;
    int moments;
    std::function<void(const Kernels&, const UpdateSpan&)> decoded;
    std::function<EncodedUpdate(const Kernels&, const EncodedSpan&)> encoded;
};

std::vector<KernelCase> kernel_cases();

}  // namespace penstock::test
