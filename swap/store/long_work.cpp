#include "swap/store/long_work.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <chrono>
#include <exception>
#include <optional>
#include <string>

namespace penstock::store {

const char* LongWork::stuck_remedy() const noexcept {
    return stuck_store_remedy;
}

void advance_until(aio::Io& io, const std::function<bool()>& ended, const std::function<void()>& abandon) {
    while (!ended()) {
        PENSTOCK_CHECK(!io.idle(), "a write waits for a pinned tile that nobody releases");
        std::optional<aio::OldestTransfer> stuck;
        try {
            stuck = io.advance(std::chrono::seconds(1));
        } catch (...) {  // no memory for what is stuck: it is left all the same
            abandon();
            throw;
        }
        if (!stuck || ended()) continue;
        abandon();
        throw Error(ExitCode::storage, stuck->message() + "; " + stuck_store_remedy);
    }
}

void finish_work(aio::Io& io, std::unique_ptr<LongWork>& work, const WorkProgress& progress) {
    std::exception_ptr refusal;  // of progress()
    while (!work->finished()) {
        PENSTOCK_CHECK(!io.idle(), "work of {} bytes waits for nothing", work->total_bytes());
        const std::uint64_t before = work->done_bytes();
        std::optional<aio::OldestTransfer> stuck;
        try {
            stuck = io.advance(std::chrono::seconds(1));
        } catch (...) {  // no memory for what is stuck: it is left all the same
            work->abandon();
            static_cast<void>(work.release());
            throw;
        }
        if (stuck && !work->finished()) {
            work->abandon();
            const LongWork* left = work.release();  // the device still holds its memory
            throw Error(ExitCode::storage, stuck->message() + "; " + left->stuck_remedy());
        }
        if (!progress || refusal || work->done_bytes() == before) continue;
        try {
            progress(work->done_bytes(), work->total_bytes());
        } catch (...) {
            refusal = std::current_exception();
            work->stop();
        }
    }
    if (refusal) std::rethrow_exception(refusal);
}

}  // namespace penstock::store
