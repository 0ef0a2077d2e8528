// Each call that a backend makes is denied alone, as a seccomp profile does: before the backend is opened, and after.
#include "aio/backend.h"
#include "aio/file.h"
#include "aio/words/error.h"
#include "tests/aio/backend/deny_uring.h"
#include "tests/aio/backend/every_backend.h"
#include "tests/aio/fakes/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

// Of clang, which makes the presets with sanitizers.
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PENSTOCK_SANITIZED
#endif
#endif

namespace penstock::aio {
namespace {

constexpr std::array denials{EPERM, EACCES, ENOSYS, ENOMEM, EINVAL};
constexpr std::size_t page = 4096;

// What a call is to the backend that is opened when it is denied.
enum class Need : std::uint8_t {
    opening,  // it cannot be opened without
    some,     // it can, and reads
};

struct Denied {
    const char* name;
    unsigned number;
    BackendKind kind;
    Need need;
};

const std::array denied_calls{
    Denied{"io_uring_setup", __NR_io_uring_setup, BackendKind::io_uring, Need::opening},
    Denied{"io_uring_enter", __NR_io_uring_enter, BackendKind::io_uring, Need::opening},
    Denied{"io_uring_register", __NR_io_uring_register, BackendKind::io_uring, Need::opening},
    Denied{"mmap", __NR_mmap, BackendKind::io_uring, Need::opening},
    Denied{"eventfd2", __NR_eventfd2, BackendKind::io_uring, Need::opening},
    Denied{"ppoll", __NR_ppoll, BackendKind::io_uring, Need::some},
#ifndef PENSTOCK_SANITIZED  // sanitizers give memory back at any time
    Denied{"munmap", __NR_munmap, BackendKind::io_uring, Need::some},
#endif
    Denied{"io_setup", __NR_io_setup, BackendKind::libaio, Need::opening},
    Denied{"io_submit", __NR_io_submit, BackendKind::libaio, Need::opening},
    Denied{"io_getevents", __NR_io_getevents, BackendKind::libaio, Need::opening},
    Denied{"io_destroy", __NR_io_destroy, BackendKind::libaio, Need::some},
    Denied{"eventfd2", __NR_eventfd2, BackendKind::libaio, Need::opening},
    Denied{"pread64", __NR_pread64, BackendKind::threads, Need::opening},
    Denied{"eventfd2", __NR_eventfd2, BackendKind::threads, Need::opening},
    Denied{"ppoll", __NR_ppoll, BackendKind::threads, Need::some},
    Denied{"pwrite64", __NR_pwrite64, BackendKind::threads, Need::some},
    Denied{"fdatasync", __NR_fdatasync, BackendKind::threads, Need::some},
};

class DeniedCalls : public ::testing::Test {
   protected:
    DeniedCalls() : path_(directory_.file("data")), file_(AT_FDCWD, path_, path_, {.mode = FileMode::create}) {
        fill_random(memory_.span(), 3);
    }
    bool is_usable(BackendKind kind) const {
        try {
            open_backend(file_.fd(), {}, kind);
            return true;
        } catch (const Error&) {
            return false;
        }
    }
    // What opening the backend says; empty: it reads.
    std::string refusal_of(BackendKind kind) const {
        try {
            const ChosenBackend chosen = open_backend(file_.fd(), {}, kind);
            return chosen.backend->name() == std::string(word_of(kind)) ? "" : "another was opened";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::storage);
            return error.what();
        }
    }
    Attempt attempt_of(IoKind kind, std::size_t place) {
        return {.kind = kind,
                .fd = file_.fd(),
                .data = memory_.data() + place * page,
                .offset_bytes = place * page,
                .bytes = kind == IoKind::flush ? 0U : static_cast<std::uint32_t>(page)};
    }

    TemporaryDirectory directory_;
    std::string path_;
    File file_;
    ScratchMemory memory_{8 * page};
};

TEST_F(DeniedCalls, ABackendIsRefusedByTheCallThatItLacksOrReadsAllTheSame) {
    for (const Denied& denied : denied_calls) {
        if (!is_usable(denied.kind)) continue;
        for (const int error : denials) {
            SCOPED_TRACE(std::string(word_of(denied.kind)) + " without " + denied.name + ": " + std::strerror(error));
            std::string refusal;
            std::thread([&] {
                ASSERT_TRUE(deny_calls({denied.number}, error));
                refusal = refusal_of(denied.kind);
            }).join();
            if (denied.need == Need::some) {
                EXPECT_EQ(refusal, "");
            } else {
                EXPECT_NE(refusal.find(std::string(word_of(denied.kind)) + " cannot be used ("), std::string::npos)
                    << refusal;
                EXPECT_EQ(refusal.find("has not come back"), std::string::npos) << refusal;
            }
        }
    }
}

TEST_F(DeniedCalls, WhereOneLacksACallTheNextIsTakenAndSaysWhich) {
    if (!file_.direct() || !is_usable(BackendKind::io_uring)) GTEST_SKIP() << "nothing to fall back from";
    for (const char* name : {"io_uring_setup", "io_uring_enter", "io_uring_register"}) {
        for (const int error : denials) {
            const unsigned number = std::strcmp(name, "io_uring_setup") == 0   ? __NR_io_uring_setup
                                    : std::strcmp(name, "io_uring_enter") == 0 ? __NR_io_uring_enter
                                                                               : __NR_io_uring_register;
            std::thread([&] {
                ASSERT_TRUE(deny_calls({number}, error));
                const ChosenBackend chosen = open_backend(file_.fd(), {});
                EXPECT_STREQ(chosen.backend->name(), "libaio");
                EXPECT_NE(chosen.note.find(name), std::string::npos) << chosen.note;
            }).join();
            std::thread([&] {
                ASSERT_TRUE(deny_calls({number, __NR_io_getevents}, error));
                const ChosenBackend chosen = open_backend(file_.fd(), {});
                EXPECT_STREQ(chosen.backend->name(), "threads");
                EXPECT_NE(chosen.note.find("libaio cannot be used (io_getevents: "), std::string::npos) << chosen.note;
            }).join();
        }
    }
}

// The calls that take an attempt to the kernel, and bring it back.
struct Way {
    BackendCase backend;
    unsigned taking;
    unsigned bringing;
};
const std::array ways{
    Way{{BackendKind::io_uring}, __NR_io_uring_enter, __NR_io_uring_enter},
    Way{{BackendKind::io_uring, UringWait::by_poll}, __NR_io_uring_enter, __NR_ppoll},
    Way{{BackendKind::libaio}, __NR_io_submit, __NR_io_getevents},
};

// A process that denies itself calls once all is open.
TEST_F(DeniedCalls, AfterTheOpeningEachAttemptEndsWithTheDenial) {
    for (const Way& way : ways) {
        if (!is_usable(way.backend.kind)) continue;
        for (const int error : {EPERM, ENOSYS, EACCES}) {
            SCOPED_TRACE(std::string(word_of(way.backend.kind)) + ": " + std::strerror(error));
            const auto backend = make_backend(way.backend, {.depth = 8});
            std::thread([&] {
                ASSERT_TRUE(deny_calls({way.taking}, error));
                for (int round = 0; round < 40; ++round) {
                    Attempt write = attempt_of(IoKind::write, 0);
                    Attempt flush = attempt_of(IoKind::flush, 0);
                    ASSERT_TRUE(backend->submit(write));
                    ASSERT_TRUE(backend->submit(flush));
                    int ended = 0;
                    for (int looks = 0; ended < 2 && looks < 100; ++looks) {
                        for (const Attempt* one = backend->reap(std::chrono::seconds(10)); one != nullptr;
                             one = one->next) {
                            EXPECT_EQ(one->result, -error);
                            ++ended;
                        }
                    }
                    ASSERT_EQ(ended, 2);
                }
                backend->wake();
                EXPECT_EQ(backend->reap(std::chrono::hours(1)), nullptr) << "a wake ends the wait";
                std::vector<std::span<std::byte>> ranges{memory_.span()};
                EXPECT_NE(backend->register_memory(ranges), "");
                EXPECT_EQ(backend->abandon(), nullptr);
            }).join();
        }
    }
}

// What the kernel has comes back where it can; else nothing aborts, and who is woken returns.
TEST_F(DeniedCalls, AfterTheOpeningResultsThatCannotBeHadAreWaitedFor) {
    for (const Way& way : ways) {
        if (!is_usable(way.backend.kind)) continue;
        SCOPED_TRACE(word_of(way.backend.kind));
        const auto backend = make_backend(way.backend, {.depth = 8});
        // Two go to the kernel at once.
        std::array writes{attempt_of(IoKind::write, 1), attempt_of(IoKind::write, 2)};
        for (Attempt& write : writes) ASSERT_TRUE(backend->submit(write));
        std::size_t back = 0;
        const auto look = [&](std::chrono::nanoseconds timeout) {
            for (const Attempt* one = backend->reap(timeout); one != nullptr; one = one->next) ++back;
        };
        std::thread([&] {
            ASSERT_TRUE(deny_calls({way.bringing}, EPERM));
            for (int looks = 0; back < 2 && looks < 20; ++looks) look(std::chrono::milliseconds(5));
            backend->wake();
        }).join();
        while (back < 2) look(std::chrono::seconds(10));
        for (const Attempt& write : writes) EXPECT_EQ(write.result, static_cast<std::int32_t>(page));
    }
}

}  // namespace
}  // namespace penstock::aio
