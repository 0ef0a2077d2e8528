#include "tests/swap/calls/call_watch.h"

#include "aio/words/check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <type_traits>

// libaio's and liburing's: the real headers are for the backends only.
using io_context_t = struct io_context*;
struct iocb;
struct io_event;
struct io_uring;
struct io_uring_cqe;
struct io_uring_probe;
struct __kernel_timespec;

namespace penstock::testing {
namespace {

constexpr std::uint64_t most_interruptions = 8;

// Of the process: the functions below have no object to ask.
std::atomic<bool> watching{false};
std::mutex mutex;
std::optional<CallFault> wanted;
WatchedCalls seen;
std::set<const void*> places;

template <typename Function>
Function* real(const char* name) {
    void* const found = ::dlsym(RTLD_NEXT, name);
    PENSTOCK_CHECK(found != nullptr, "no function {} behind this one", name);
    return reinterpret_cast<Function*>(found);
}

// Whether it is this call's turn, which is the one of that number among those of its name.
bool is_meant(std::size_t call, std::uint64_t ordinal) {
    if (wanted->call == call) return ordinal >= wanted->ordinal;
    const WatchedCall& other = watched_calls[call];
    return wanted->recurs == Recurs::everywhere && seen.struck > 0 && !other.only_once &&
           std::find(other.errors.begin(), other.errors.end(), wanted->error) != other.errors.end();
}

// What this call fails with; 0: nothing.
int strike(std::size_t call, const void* caller) {
    const std::lock_guard lock(mutex);
    places.insert(caller);
    const std::uint64_t ordinal = seen.counts[call]++;
    if (!wanted || !is_meant(call, ordinal)) return 0;
    std::uint64_t most = wanted->recurs == Recurs::once ? 1 : ~0ULL;
    if (wanted->error == EINTR) most = std::min(most, most_interruptions);
    if (seen.struck == most) return 0;
    ++seen.struck;
    return wanted->error;
}

// Calls the function behind this one unless it must fail; then `fail` makes its result from the error.
template <std::size_t call, typename Fail, typename Result, typename... Parameters>
Result pass(Result (* /*type*/)(Parameters...), const void* caller, Fail fail,
            std::type_identity_t<Parameters>... arguments) {
    static auto* const behind = real<Result(Parameters...)>(watched_calls[call].name);
    const int error = watching.load(std::memory_order_acquire) ? strike(call, caller) : 0;
    return error == 0 ? behind(arguments...) : fail(error, behind);
}

template <typename Result>
auto errno_and(Result result) {
    return [result](int error, auto*) {
        errno = error;
        return result;
    };
}

constexpr auto negative = [](int error, auto*) { return -error; };
constexpr auto positive = [](int error, auto*) { return error; };

bool is_file(int fd) {
    static auto* const behind = real<int(int, struct stat*)>("fstat");
    struct stat status {};
    return behind(fd, &status) == 0 && S_ISREG(status.st_mode);
}

void note_reading(int fd, ssize_t bytes) {
    if (!watching || bytes <= 0) return;
    std::array<char, 4096> path{};
    const ssize_t length = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path.data(), path.size());
    const std::lock_guard lock(mutex);
    seen.bytes_read[std::string(path.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)))] +=
        static_cast<std::uint64_t>(bytes);
}

// A count that keeps to blocks, where it can.
std::size_t half(std::size_t bytes) {
    return bytes > 1024 ? bytes / 2 / 512 * 512 : bytes / 2;
}

}  // namespace

std::string to_string(const CallFault& fault) {
    constexpr std::array<const char*, 3> recurs{"once", "from then on", "everywhere from then on"};
    return fmt::format("{} #{}: {} {}", watched_calls[fault.call].name, fault.ordinal,
                       fault.error == half_of_it ? "half of it" : ::strerrorname_np(fault.error),
                       recurs[static_cast<std::size_t>(fault.recurs)]);
}

void watch_calls(std::optional<CallFault> fault) {
    const std::lock_guard lock(mutex);
    wanted = fault;
    seen = {};
    places.clear();
    watching = true;
}

void end_watch() {
    watching = false;
}

WatchedCalls watched() {
    const std::lock_guard lock(mutex);
    seen.places = places.size();
    return seen;
}

// NOLINTBEGIN: the names are the system's
// Under another name here, because the system's headers declare them, too, and promise what these cannot.
#define PENSTOCK_WATCHED(result, name, fail, parameters, ...)                                                       \
    extern "C" result watched_##name parameters __asm__(#name);                                                     \
    extern "C" result watched_##name parameters {                                                                   \
        return pass<call_of(#name)>(&watched_##name, __builtin_return_address(0), fail __VA_OPT__(, ) __VA_ARGS__); \
    }
#define PENSTOCK_WATCHED_INT(name, parameters, ...) PENSTOCK_WATCHED(int, name, errno_and(-1), parameters, __VA_ARGS__)

// The variable argument is passed like a fixed one.
PENSTOCK_WATCHED_INT(open, (const char* path, int flags, mode_t mode), path, flags, mode)
PENSTOCK_WATCHED_INT(openat, (int at, const char* path, int flags, mode_t mode), at, path, flags, mode)
PENSTOCK_WATCHED_INT(fcntl, (int fd, int command, long argument), fd, command, argument)
PENSTOCK_WATCHED_INT(access, (const char* path, int mode), path, mode)
PENSTOCK_WATCHED_INT(stat, (const char* path, struct stat* status), path, status)
PENSTOCK_WATCHED_INT(lstat, (const char* path, struct stat* status), path, status)
PENSTOCK_WATCHED_INT(fstat, (int fd, struct stat* status), fd, status)
PENSTOCK_WATCHED_INT(fstatat, (int at, const char* path, struct stat* status, int flags), at, path, status, flags)
PENSTOCK_WATCHED_INT(statx, (int at, const char* path, int flags, unsigned mask, struct statx* answer), at, path, flags,
                     mask, answer)
PENSTOCK_WATCHED_INT(fstatvfs, (int fd, struct statvfs* status), fd, status)
PENSTOCK_WATCHED_INT(flock, (int fd, int operation), fd, operation)
PENSTOCK_WATCHED_INT(mkdir, (const char* path, mode_t mode), path, mode)
PENSTOCK_WATCHED_INT(unlinkat, (int at, const char* path, int flags), at, path, flags)
PENSTOCK_WATCHED_INT(unlink, (const char* path), path)
PENSTOCK_WATCHED_INT(rmdir, (const char* path), path)
PENSTOCK_WATCHED_INT(rename, (const char* from, const char* to), from, to)
PENSTOCK_WATCHED_INT(renameat, (int from_fd, const char* from, int to_fd, const char* to), from_fd, from, to_fd, to)
PENSTOCK_WATCHED_INT(fsync, (int fd), fd)
PENSTOCK_WATCHED_INT(fdatasync, (int fd), fd)
PENSTOCK_WATCHED_INT(ftruncate, (int fd, off_t bytes), fd, bytes)
PENSTOCK_WATCHED_INT(fallocate, (int fd, int mode, off_t offset, off_t bytes), fd, mode, offset, bytes)
PENSTOCK_WATCHED_INT(ioctl, (int fd, unsigned long request, void* argument), fd, request, argument)
PENSTOCK_WATCHED_INT(mprotect, (void* memory, size_t bytes, int access), memory, bytes, access)
PENSTOCK_WATCHED_INT(madvise, (void* memory, size_t bytes, int advice), memory, bytes, advice)
PENSTOCK_WATCHED_INT(eventfd, (unsigned count, int flags), count, flags)
PENSTOCK_WATCHED_INT(epoll_create1, (int flags), flags)
PENSTOCK_WATCHED_INT(epoll_ctl, (int epoll, int operation, int fd, struct epoll_event* event), epoll, operation, fd,
                     event)
PENSTOCK_WATCHED_INT(timerfd_create, (int clock, int flags), clock, flags)
PENSTOCK_WATCHED_INT(ppoll,
                     (struct pollfd * polled, unsigned long count, const struct timespec* timeout,
                      const sigset_t* signals),
                     polled, count, timeout, signals)
PENSTOCK_WATCHED_INT(gethostname, (char* name, size_t bytes), name, bytes)
PENSTOCK_WATCHED(ssize_t, getrandom, errno_and(ssize_t{-1}), (void* memory, size_t bytes, unsigned flags), memory,
                 bytes, flags)
PENSTOCK_WATCHED(void*, mmap, errno_and(MAP_FAILED),
                 (void* memory, size_t bytes, int access, int flags, int fd, off_t offset), memory, bytes, access,
                 flags, fd, offset)
PENSTOCK_WATCHED(DIR*, fdopendir, errno_and(static_cast<DIR*>(nullptr)), (int fd), fd)
PENSTOCK_WATCHED(dirent*, readdir, errno_and(static_cast<dirent*>(nullptr)), (DIR * directory), directory)
PENSTOCK_WATCHED(int, pthread_create, positive,
                 (pthread_t * thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument), thread,
                 attributes, body, argument)

// These end their descriptor also when they say that they failed.
PENSTOCK_WATCHED(int, close, ([fd](int error, auto* behind) {
                     behind(fd);
                     errno = error;
                     return -1;
                 }),
                 (int fd), fd)
PENSTOCK_WATCHED(int, closedir, ([directory](int error, auto* behind) {
                     behind(directory);
                     errno = error;
                     return -1;
                 }),
                 (DIR * directory), directory)

PENSTOCK_WATCHED(int, io_uring_queue_init, negative, (unsigned entries, struct io_uring* ring, unsigned flags), entries,
                 ring, flags)
PENSTOCK_WATCHED(int, io_uring_register_probe, negative,
                 (struct io_uring * ring, struct io_uring_probe* probe, unsigned count), ring, probe, count)
PENSTOCK_WATCHED(int, io_uring_submit, negative, (struct io_uring * ring), ring)
PENSTOCK_WATCHED(int, io_uring_submit_and_wait_timeout, negative,
                 (struct io_uring * ring, io_uring_cqe** first, unsigned count, __kernel_timespec* timeout,
                  sigset_t* signals),
                 ring, first, count, timeout, signals)
PENSTOCK_WATCHED(int, io_uring_register_buffers, negative,
                 (struct io_uring * ring, const struct iovec* buffers, unsigned count), ring, buffers, count)
PENSTOCK_WATCHED(int, io_uring_register_files, negative, (struct io_uring * ring, const int* files, unsigned count),
                 ring, files, count)
PENSTOCK_WATCHED(int, io_setup, negative, (int count, io_context_t* context), count, context)
PENSTOCK_WATCHED(int, io_submit, negative, (io_context_t context, long count, struct iocb** requests), context, count,
                 requests)
PENSTOCK_WATCHED(int, io_getevents, negative,
                 (io_context_t context, long least, long most, struct io_event* events, struct timespec* timeout),
                 context, least, most, events, timeout)

// Of what moves bytes there may be half.
#define PENSTOCK_WATCHED_BYTES(name, memory_type, ...)                                                             \
    extern "C" ssize_t watched_##name(int fd, memory_type memory,                                                  \
                                      size_t bytes __VA_OPT__(, off_t offset)) __asm__(#name);                     \
    extern "C" ssize_t watched_##name(int fd, memory_type memory, size_t bytes __VA_OPT__(, off_t offset)) {       \
        const auto fail = [=](int error, auto* behind) {                                                           \
            if (error == half_of_it) return behind(fd, memory, half(bytes) __VA_OPT__(, offset));                  \
            errno = error;                                                                                         \
            return ssize_t{-1};                                                                                    \
        };                                                                                                         \
        static auto* const unwatched = real<ssize_t(int, memory_type, size_t __VA_OPT__(, off_t))>(#name);         \
        if (!watching || !is_file(fd)) return unwatched(fd, memory, bytes __VA_OPT__(, offset));                   \
        const ssize_t moved = pass<call_of(#name)>(&watched_##name, __builtin_return_address(0), fail, fd, memory, \
                                                   bytes __VA_OPT__(, offset));                                    \
        if constexpr (call_of(#name) == call_of("pread")) {                                                        \
            const int error = errno;                                                                               \
            note_reading(fd, moved);                                                                               \
            errno = error;                                                                                         \
        }                                                                                                          \
        return moved;                                                                                              \
    }
PENSTOCK_WATCHED_BYTES(read, void*)
PENSTOCK_WATCHED_BYTES(write, const void*)
PENSTOCK_WATCHED_BYTES(pread, void*, offset)
PENSTOCK_WATCHED_BYTES(pwrite, const void*, offset)
// NOLINTEND

}  // namespace penstock::testing
