#include "swap/long_work.h"

#include "aio/error.h"

#include <algorithm>
#include <exception>
#include <string>

namespace penstock {

void throw_stuck(const Io& io) {
    const auto oldest = io.oldest();
    throw Error(ExitCode::storage, (oldest ? oldest->message() : std::string("an operation has not come back")) +
                                       "; check the device (dmesg). What was committed is safe.");
}

namespace {

[[noreturn]] void leave(const Io& io, std::unique_ptr<LongWork>& work) {
    work->abandon();
    static_cast<void>(work.release());  // the device still holds its memory
    throw_stuck(io);
}

}  // namespace

void finish_work(Io& io, std::unique_ptr<LongWork>& work, const WorkProgress& progress,
                 std::chrono::nanoseconds deadline) {
    using Clock = std::chrono::steady_clock;
    std::exception_ptr refusal;  // of progress()
    auto last = Clock::now();
    while (!work->finished()) {
        const std::uint64_t before = work->done_bytes();
        auto left = deadline - (Clock::now() - last);
        if (left <= std::chrono::nanoseconds(0)) {
            // The process itself may have been stopped for so long: what came back meanwhile is seen first.
            io.poll();
            if (work->finished()) break;
            const auto oldest = io.oldest();
            if (!oldest || oldest->age >= deadline) leave(io, work);
            left = deadline - oldest->age;
        }
        io.wait(std::min<std::chrono::nanoseconds>(left, std::chrono::seconds(1)));
        if (work->done_bytes() == before) continue;
        try {
            if (progress && !refusal) progress(work->done_bytes(), work->total_bytes());
        } catch (...) {
            refusal = std::current_exception();
            work->stop();
        }
        last = Clock::now();
    }
    if (refusal) std::rethrow_exception(refusal);
}

}  // namespace penstock
