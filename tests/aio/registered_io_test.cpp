// Attempts on registered memory and files: they end as all others do, and where nothing can be registered, nothing
// changes.
#include "aio/backend.h"
#include "aio/file.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "tests/aio/backend/every_backend.h"
#include "tests/aio/fakes/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

namespace penstock::aio {
namespace {

constexpr std::size_t page = 4096;

class RegisteredIo : public ::testing::TestWithParam<BackendCase> {
   protected:
    RegisteredIo() : a_(make_file("a")), b_(make_file("b")), memory_(16 * page) {
        try {
            backend_ = make_backend(GetParam(), {.depth = 4});
        } catch (const Error& error) {
            why_not_ = error.what();
        }
        fill_random(memory_.span(), 3);
    }
    void SetUp() override {
        if (!backend_) GTEST_SKIP() << why_not_;
    }
    File make_file(const char* name) {
        const std::string path = directory_.file(name);
        return {AT_FDCWD, path, path, {.mode = FileMode::create}};
    }
    std::span<std::byte> pages(std::size_t first, std::size_t count) {
        return memory_.span().subspan(first * page, count * page);
    }
    std::int32_t run(IoKind kind, const RegisteredFile& file, std::span<std::byte> data) {
        Attempt attempt{.kind = kind,
                        .fd = file.fd,
                        .data = data.data(),
                        .bytes = static_cast<std::uint32_t>(data.size()),
                        .file_id = file.id};
        EXPECT_TRUE(backend_->submit(attempt));
        while (backend_->reap(std::chrono::seconds(10)) == nullptr) {
        }
        return attempt.result;
    }
    // Writes the pages to file a and reads them back into pages 8 and following.
    void expect_round_trip(std::size_t first, std::size_t count) {
        const auto bytes = static_cast<std::int32_t>(count * page);
        EXPECT_EQ(run(IoKind::write, {.fd = a_.fd()}, pages(first, count)), bytes);
        EXPECT_EQ(run(IoKind::read, {.fd = a_.fd()}, pages(8, count)), bytes);
        EXPECT_EQ(std::memcmp(pages(first, count).data(), pages(8, count).data(), count * page), 0);
    }
    bool is_written(const char* name) { return std::ifstream(directory_.file(name)).get() != EOF; }

    TemporaryDirectory directory_;
    File a_;
    File b_;
    ScratchMemory memory_;
    std::unique_ptr<Backend> backend_;
    std::string why_not_;
};

// KiB that the kernel holds pinned for this process.
std::uint64_t pinned_kib() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        std::uint64_t kib = 0;
        if (word == "VmPin:" && status >> kib) return kib;
    }
    return 0;
}

// Rings of earlier tests give their memory back in the background; until they have, figures change by themselves.
bool all_is_unpinned() {
    for (int i = 0; i < 10'000 && pinned_kib() != 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return pinned_kib() == 0;
}

TEST_P(RegisteredIo, MovesBytesInsideAcrossAndOutsideOfRanges) {
    const std::array ranges{pages(2, 2), pages(0, 2), pages(8, 4)};
    const std::string note = backend_->register_memory(ranges);
    if (!note.empty()) GTEST_SKIP() << note;
    for (const std::size_t first : {0, 2, 1, 3, 4, 0}) expect_round_trip(first, 2);
    expect_round_trip(0, 6);
    EXPECT_EQ(run(IoKind::flush, {.fd = a_.fd()}, {}), 0);
}

TEST_P(RegisteredIo, KeepsMemoryPinnedUntilItIsReplaced) {
    if (!all_is_unpinned()) GTEST_SKIP() << "something else keeps memory pinned";
    const std::array ranges{pages(0, 4)};
    const std::array others{pages(4, 2)};
    if (const std::string note = backend_->register_memory(ranges); !note.empty()) GTEST_SKIP() << note;
    EXPECT_EQ(pinned_kib(), 16U);
    EXPECT_EQ(backend_->register_memory(others), "");
    EXPECT_EQ(pinned_kib(), 8U);
    expect_round_trip(0, 2);
    expect_round_trip(4, 2);
    EXPECT_EQ(backend_->register_memory({}), "");
    EXPECT_EQ(pinned_kib(), 0U);
    expect_round_trip(4, 2);
}

TEST_P(RegisteredIo, RegistersNothingWhenOneRangeIsRefused) {
    if (!all_is_unpinned()) GTEST_SKIP() << "something else keeps memory pinned";
    const std::array good{pages(0, 4)};
    backend_->register_memory(good);
    void* const hole = ::mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const std::array bad{pages(0, 4), std::span(static_cast<std::byte*>(hole), page)};
    const std::string note = backend_->register_memory(bad);
    EXPECT_NE(note, "");
    EXPECT_EQ(note.find('\n'), std::string::npos);
    EXPECT_EQ(pinned_kib(), 0U);
    expect_round_trip(0, 2);
    ::munmap(hole, page);
}

TEST_P(RegisteredIo, NeverRefusesToRegisterNothing) {
    EXPECT_EQ(backend_->register_memory({}), "");
    EXPECT_EQ(backend_->register_files({}), "");
}

TEST_P(RegisteredIo, LosesNoWakeByRegistering) {
    const std::array ranges{pages(0, 4)};
    backend_->wake();
    backend_->register_memory(ranges);
    EXPECT_EQ(backend_->reap(std::chrono::hours(1)), nullptr);
    for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(backend_->reap(std::chrono::nanoseconds(0)), nullptr);
        backend_->wake();
        EXPECT_EQ(backend_->reap(std::chrono::hours(1)), nullptr);
    }
    expect_round_trip(0, 2);
}

TEST_P(RegisteredIo, TakesTheFileWhoseIdItIs) {
    const RegisteredFile a{.fd = a_.fd(), .id = 9};
    const RegisteredFile b{.fd = b_.fd(), .id = 4};
    if (const std::string note = backend_->register_files(std::array{a, b}); !note.empty()) GTEST_SKIP() << note;
    // That the descriptor is not looked at shows that the registered file is used.
    EXPECT_EQ(run(IoKind::write, {.fd = -1, .id = 4}, pages(0, 1)), page);
    EXPECT_TRUE(is_written("b"));
    EXPECT_FALSE(is_written("a"));
    EXPECT_EQ(run(IoKind::flush, {.fd = -1, .id = 4}, {}), 0);
    EXPECT_EQ(backend_->register_files(std::array{a}), "");
    EXPECT_EQ(run(IoKind::write, {.fd = -1, .id = 4}, pages(0, 1)), -EBADF);
    EXPECT_EQ(run(IoKind::write, {.fd = -1, .id = 9}, pages(0, 1)), page);
    EXPECT_TRUE(is_written("a"));
    EXPECT_EQ(backend_->register_files({}), "");
    EXPECT_EQ(run(IoKind::write, {.fd = -1, .id = 9}, pages(0, 1)), -EBADF);
}

TEST_P(RegisteredIo, NeverTakesARegisteredFileForALaterOneWithItsDescriptor) {
    backend_->register_files(std::array{RegisteredFile{.fd = a_.fd(), .id = 1}});
    const int number = a_.fd();
    a_ = File();
    const File later = make_file("later");
    ASSERT_EQ(later.fd(), number) << "the kernel gives the lowest free number";
    EXPECT_EQ(run(IoKind::write, {.fd = number, .id = 2}, pages(0, 1)), page);
    EXPECT_TRUE(is_written("later"));
    EXPECT_FALSE(is_written("a"));
}

TEST_P(RegisteredIo, RegistersNoFileWhenOneIsRefused) {
    const RegisteredFile a{.fd = a_.fd(), .id = 1};
    const RegisteredFile not_open{.fd = 1 << 20, .id = 2};
    backend_->register_files(std::array{a});
    const std::string note = backend_->register_files(std::array{a, not_open});
    EXPECT_NE(note, "");
    EXPECT_EQ(note.find('\n'), std::string::npos);
    EXPECT_EQ(run(IoKind::write, {.fd = -1, .id = 1}, pages(0, 1)), -EBADF);
    EXPECT_EQ(run(IoKind::write, a, pages(0, 1)), page);
}

INSTANTIATE_TEST_SUITE_P(All, RegisteredIo, every_backend(), name_of_backend);

// Of the calling thread only: with it the limit on locked memory is not enforced.
bool give_up_the_right_to_lock_memory() {
    __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, 2> data{};
    if (::syscall(SYS_capget, &header, data.data()) != 0) return false;
    data[0].effective &= ~(1U << CAP_IPC_LOCK);
    return ::syscall(SYS_capset, &header, data.data()) == 0;
}

TEST(UringRegistration, NamesTheLimitOnLockedMemory) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
    const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
    if (before.rlim_max < small.rlim_cur) GTEST_SKIP() << "the limit is smaller than this test needs";
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &small), 0);
    std::string note = "skipped";
    std::thread([&] {
        if (!give_up_the_right_to_lock_memory()) return;
        const ScratchMemory memory(4 << 20);
        try {
            const std::unique_ptr<Backend> backend = make_uring_backend({.depth = 4});
            note = backend->register_memory(std::array{memory.span()});
        } catch (const Error&) {
        }
    }).join();
    ::setrlimit(RLIMIT_MEMLOCK, &before);
    if (note == "skipped") GTEST_SKIP() << "no io_uring, or the right to lock memory cannot be given up";
    EXPECT_EQ(note,
              "io_uring_register_buffers: Cannot allocate memory (ENOMEM); 4096 KiB do not fit in the limit on locked "
              "memory, 1024 KiB (ulimit -l), or in memory");
}

// ---------------------------------------------------------------- the end of a ring

// The kernel takes a closed ring apart in the background, so a ring that left it to that would refuse its successor. On
// a thread with a user of its own, whose limit nobody else uses up.
TEST(UringRegistration, LeavesNothingOfItsChargeToTheNextRing) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
    const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
    if (before.rlim_max < small.rlim_cur) GTEST_SKIP() << "the limit is smaller than this test needs";
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &small), 0);
    constexpr unsigned rings = 20;
    unsigned tried = 0;
    std::string note;
    std::thread([&] {
        const long nobody_else = 1'000'000'000L + ::getpid();
        if (::syscall(SYS_setresuid, nobody_else, nobody_else, nobody_else) != 0) return;
        const ScratchMemory memory(768 << 10);
        try {
            while (tried < rings && note.empty()) {
                const std::unique_ptr<Backend> backend = make_uring_backend({.depth = 4});
                note = backend->register_memory(std::array{memory.span()});
                ++tried;
            }
        } catch (const Error&) {
        }
    }).join();
    ::setrlimit(RLIMIT_MEMLOCK, &before);
    if (tried == 0) GTEST_SKIP() << "no io_uring, or the user cannot be changed";
    EXPECT_EQ(note, "") << "for ring " << tried;
    EXPECT_EQ(tried, rings);
}

TEST(UringRegistration, LeavesNoClosedFileOpen) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("locked");
    for (int round = 0; round < 20; ++round) {
        std::unique_ptr<Backend> backend;
        try {
            backend = make_uring_backend({.depth = 4});
        } catch (const Error& error) {
            GTEST_SKIP() << error.what();
        }
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0) << "an earlier ring holds it in round " << round;
        ASSERT_EQ(backend->register_files(std::array{RegisteredFile{.fd = fd, .id = 1}}), "");
        ::close(fd);
    }
}

}  // namespace
}  // namespace penstock::aio
