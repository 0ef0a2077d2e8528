#include "swap/hashing/hash_crew.h"

#include "aio/backend/blocked_signals.h"
#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace penstock::store {

HashCrew::HashCrew(aio::Io& io, const Hashing& options) : TileHashers(options.least_bytes), io_(io) {
    PENSTOCK_CHECK(options.threads > 0, "a crew of nobody");
    threads_.reserve(options.threads);
    const aio::BlockedSignals blocked;
    try {
        while (threads_.size() < options.threads) threads_.emplace_back([this] { work(); });
    } catch (const std::exception& error) {  // system_error or bad_alloc
        stop();
        throw Error(ExitCode::out_of_memory,
                    fmt::format("cannot start thread {} of {} that hash tiles: {}; raise the limit on threads "
                                "(ulimit -u)",
                                threads_.size() + 1, options.threads, error.what()));
    }
}

HashCrew::~HashCrew() {
    stop();
}

void HashCrew::stop() noexcept {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    begun_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void HashCrew::begin(HashJob& job) noexcept {
    {
        const std::lock_guard lock(mutex_);
        job.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &job;
        last_ = &job;
    }
    begun_.notify_one();
}

void HashCrew::work() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
        begun_.wait(lock, [this] { return stopping_ || first_ != nullptr; });
        if (first_ == nullptr) return;
        HashJob& job = *std::exchange(first_, first_->next);
        lock.unlock();
        job.hash = hash_tile(job.bytes, job.identity);
        io_.give_back(*job.transfer);  // from here on it may be gone
        lock.lock();
    }
}

}  // namespace penstock::store
