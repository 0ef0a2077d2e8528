// A training without each of its system calls, one at a time: it goes on, or is refused in words. Never an abort, never
// a wait without an end.
#include "tests/restricted/deniable_calls.h"
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

class DeniedCall : public ::testing::Test {
   protected:
    DeniedCall() { write_toy(directory_.path()); }

    Ended train_without(const std::string& call, const std::string& error, const std::string& backend) {
        std::filesystem::remove_all(directory_ / "swap");
        std::filesystem::remove_all(directory_ / "run");
        return run_command(directory_.path(),
                           {"/usr/bin/env", "timeout", "-k", "1", "60", PENSTOCK_RESTRICTED, "--deny", call, error,
                            "--", PENSTOCK_PROGRAM, "train", "config.json", "--steps", "2", "--set",
                            "run.io_backend=" + backend, "--set", "run.sample.tokens=0"});
    }
    static void expect_refused(const Ended& ended) {
        EXPECT_TRUE(ended.code >= 2 && ended.code <= 5) << ended.code << ": " << ended.errors;
        EXPECT_NE(ended.errors.find("penstock: error: "), std::string::npos) << ended.errors;
        EXPECT_EQ(ended.errors.find("check failed"), std::string::npos) << ended.errors;
        EXPECT_EQ(ended.errors.find("terminate"), std::string::npos) << ended.errors;
    }

    TemporaryDirectory directory_;
};

TEST_F(DeniedCall, ATrainingGoesOnOrIsRefusedInWords) {
    if (train_without("lstat", "EPERM", "auto").code == 77) GTEST_SKIP() << "no system call filters here";
    for (const DeniableCall& call : deniable_calls) {
        for (const std::string error : {"EPERM", "ENOSYS"}) {
            SCOPED_TRACE(call.name + (" " + error));
            const Ended ended = train_without(call.name, error, "auto");
            switch (call.end) {
                case DeniableCall::End::trained:
                    EXPECT_EQ(ended.code, 0) << ended.errors;
                    break;
                case DeniableCall::End::refused:
                    expect_refused(ended);
                    break;
                case DeniableCall::End::either:
                    if (ended.code != 0) expect_refused(ended);
                    break;
            }
        }
    }
}

// A backend that was asked for by name is refused by it; the others do without the call.
TEST_F(DeniedCall, OfAWantedBackendIsNamed) {
    struct Of {
        const char* backend;
        std::vector<std::string> calls;
    };
    const std::vector<Of> needed{{"io_uring", {"io_uring_setup", "io_uring_enter", "io_uring_register"}},
                                 {"libaio", {"io_setup", "io_submit", "io_getevents"}},
                                 {"threads", {}}};
    for (const Of& wanted : needed) {
        if (train_without("lstat", "EPERM", wanted.backend).code != 0) continue;
        for (const Of& of : needed) {
            for (const std::string& call : of.calls) {
                for (const std::string error : {"EPERM", "ENOSYS", "EACCES", "ENOMEM", "EINVAL"}) {
                    SCOPED_TRACE(std::string(wanted.backend) + " without " + call + ": " + error);
                    const Ended ended = train_without(call, error, wanted.backend);
                    if (wanted.backend != std::string(of.backend)) {
                        EXPECT_EQ(ended.code, 0) << ended.errors;
                        break;
                    }
                    expect_refused(ended);
                    EXPECT_NE(ended.errors.find(std::string(wanted.backend) + " cannot be used (" + call),
                              std::string::npos)
                        << ended.errors;
                }
            }
        }
    }
}

}  // namespace
}  // namespace penstock::testing
