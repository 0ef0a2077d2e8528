// Threads that hash tiles, so that whoever owns the store only submits, collects and compares.
#pragma once

#include "aio/io.h"
#include "swap/hashing/tile_hashers.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock::store {

// Its threads live from the constructor to the destructor, with signals blocked. Jobs are taken in their order, each by
// one thread, and may end in any. No allocation per job.
class HashCrew final : public TileHashers {
   public:
    // All jobs go back to this Io, which outlives the crew. Throws Error (out_of_memory) when the system gives no more
    // threads. REQUIRES: options.threads > 0.
    HashCrew(aio::Io& io, const Hashing& options);
    // Ends what was begun: its memory is still there, also that of an abandoned store.
    ~HashCrew() override;

    void begin(HashJob& job) noexcept override;

   private:
    void work() noexcept;
    void stop() noexcept;

    aio::Io& io_;
    std::mutex mutex_;
    std::condition_variable begun_;
    HashJob* first_ = nullptr;  // mutex_: of those that wait, in their order
    HashJob* last_ = nullptr;   // mutex_: where there is a first one
    bool stopping_ = false;     // mutex_: threads end once nothing waits
    std::vector<std::thread> threads_;
};

}  // namespace penstock::store
