// The backends that a test of the seam runs on: each kind, and io_uring also as it waits on kernels before 5.11.
#pragma once

#include "aio/backend.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace penstock::aio {

struct BackendCase {
    BackendKind kind = BackendKind::io_uring;
    UringWait wait = UringWait::probed;
};

// Throws Error where the kernel refuses it.
inline std::unique_ptr<Backend> make_backend(const BackendCase& wanted, BackendOptions options) {
    options.uring_wait = wanted.wait;
    if (wanted.kind == BackendKind::io_uring) return make_uring_backend(options);
    return wanted.kind == BackendKind::libaio ? make_libaio_backend(options) : make_thread_backend(options);
}

inline auto every_backend() {
    return ::testing::Values(BackendCase{BackendKind::io_uring}, BackendCase{BackendKind::io_uring, UringWait::by_poll},
                             BackendCase{BackendKind::libaio}, BackendCase{BackendKind::threads});
}

inline std::string name_of_backend(const ::testing::TestParamInfo<BackendCase>& each) {
    return std::string(word_of(each.param.kind)) + (each.param.wait == UringWait::by_poll ? "_by_poll" : "");
}

}  // namespace penstock::aio
