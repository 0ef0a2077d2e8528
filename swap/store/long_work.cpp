#include "swap/store/long_work.h"

#include "aio/words/error.h"

#include <algorithm>
#include <exception>
#include <string>

namespace penstock::store {

void throw_stuck(const aio::Io& io) {
    const auto oldest = io.oldest();
    throw Error(ExitCode::storage, (oldest ? oldest->message() : std::string("an operation has not come back")) +
                                       "; check the device (dmesg). What was committed is safe.");
}

namespace {

[[noreturn]] void leave(const aio::Io& io, std::unique_ptr<LongWork>& work) {
    work->abandon();
    static_cast<void>(work.release());  // the device still holds its memory
    throw_stuck(io);
}

}  // namespace

void finish_work(aio::Io& io, std::unique_ptr<LongWork>& work, const WorkProgress& progress,
                 std::chrono::nanoseconds deadline) {
    using Clock = std::chrono::steady_clock;
    std::exception_ptr refusal;  // of progress()
    auto last = Clock::now();
    while (!work->finished()) {
        const std::uint64_t before = work->done_bytes();
        const std::chrono::nanoseconds left = deadline - (Clock::now() - last);
        // Past the deadline a poll: the process itself may have stood still, while everything came back.
        io.wait(std::clamp<std::chrono::nanoseconds>(left, std::chrono::seconds(0), std::chrono::seconds(1)));
        if (work->done_bytes() != before) {
            try {
                if (progress && !refusal) progress(work->done_bytes(), work->total_bytes());
            } catch (...) {
                refusal = std::current_exception();
                work->stop();
            }
            last = Clock::now();
        } else if (left <= std::chrono::seconds(0) && !work->finished()) {
            const auto oldest = io.oldest();
            if (!oldest || oldest->age >= deadline) leave(io, work);
            last = Clock::now() - oldest->age;
        }
    }
    if (refusal) std::rethrow_exception(refusal);
}

}  // namespace penstock::store
