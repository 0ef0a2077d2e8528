#include "trainer/cli/failure.h"
#include "aio/words/error.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <new>
#include <system_error>

namespace penstock::trainer {
namespace {

template <typename Thrower>
Failure failure_of(const Thrower& thrower) {
    try {
        thrower();
    } catch (...) {
        return current_failure();
    }
    return {ExitCode::ok, ""};
}

TEST(Failure, ErrorsCarryTheirCode) {
    const Failure failure = failure_of([] { throw Error(ExitCode::does_not_fit, "too much"); });
    EXPECT_EQ(failure.code, ExitCode::does_not_fit);
    EXPECT_EQ(failure.message, "too much");
}

TEST(Failure, MissingMemoryIsFive) {
    EXPECT_EQ(failure_of([] { throw std::bad_alloc(); }).code, ExitCode::out_of_memory);
    const Failure torch =
        failure_of([] { TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried 1 byte"); });
    EXPECT_EQ(torch.code, ExitCode::out_of_memory);
    EXPECT_NE(torch.message.find("out of memory on the host"), std::string::npos);
    EXPECT_EQ(failure_of([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "no"); }).code, ExitCode::out_of_memory);
}

TEST(Failure, AThreadThatMayNotBeMadeIsFiveWithARemedy) {
    const Failure failure =
        failure_of([] { throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)); });
    EXPECT_EQ(failure.code, ExitCode::out_of_memory);
    EXPECT_NE(failure.message.find("ulimit -u"), std::string::npos) << failure.message;
    EXPECT_EQ(failure_of([] { throw std::system_error(std::make_error_code(std::errc::io_error)); }).code,
              ExitCode::internal);
}

TEST(Failure, AThreadThatAProfileForbidsIsFiveAndNamesTheCalls) {
    const Failure failure =
        failure_of([] { throw std::system_error(std::make_error_code(std::errc::operation_not_permitted)); });
    EXPECT_EQ(failure.code, ExitCode::out_of_memory);
    EXPECT_NE(failure.message.find("clone3"), std::string::npos) << failure.message;
}

// oneDNN has no other words for it.
TEST(Failure, AKernelThatFindsNoMemoryIsFiveAndTheLimitsOfTheProcessAreSaid) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_DATA, &before), 0);
    const rlimit limited{.rlim_cur = 1ULL << 40, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_DATA, &limited), 0);
    const Failure failure = failure_of([] { throw std::runtime_error("could not create a primitive"); });
    ASSERT_EQ(::setrlimit(RLIMIT_DATA, &before), 0);
    EXPECT_EQ(failure.code, ExitCode::out_of_memory);
    EXPECT_NE(failure.message.find("data segments (ulimit -d) is 1TiB"), std::string::npos) << failure.message;
}

TEST(Failure, WhatAFileSystemRefusesIsStorage) {
    const Failure failure = failure_of([] {
        throw std::filesystem::filesystem_error("cannot get current path",
                                                std::make_error_code(std::errc::permission_denied));
    });
    EXPECT_EQ(failure.code, ExitCode::storage);
    EXPECT_NE(failure.message.find("cannot get current path"), std::string::npos) << failure.message;
}

TEST(Failure, EverythingElseIsInternal) {
    const Failure torch = failure_of([] { TORCH_CHECK(false, "shapes differ"); });
    EXPECT_EQ(torch.code, ExitCode::internal);
    EXPECT_NE(torch.message.find("shapes differ"), std::string::npos);
    EXPECT_EQ(failure_of([] { throw std::runtime_error("odd"); }).code, ExitCode::internal);
    EXPECT_EQ(failure_of([] { throw 7; }).code, ExitCode::internal);
}

}  // namespace
}  // namespace penstock::trainer
