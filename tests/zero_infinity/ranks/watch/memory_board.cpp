#include "tests/zero_infinity/ranks/watch/memory_board.h"

#include "aio/words/error.h"

#include <gtest/gtest.h>

#include <thread>

namespace penstock::testing {

MemoryBoard::MemoryBoard(std::uint64_t seed, std::chrono::microseconds most_delay)
    : moods_(seed), most_delay_(most_delay) {}

// A call takes its time before it has an effect, and is lost or not when it has one.
void MemoryBoard::come() {
    ++calls_;
    std::chrono::microseconds delay{0};
    if (most_delay_.count() > 0) {
        const std::lock_guard lock(mutex_);
        delay =
            std::chrono::microseconds(static_cast<long>(moods_() % static_cast<std::uint64_t>(most_delay_.count())));
    }
    std::this_thread::sleep_for(delay);
    if (lost_) throw Error(ExitCode::peer_lost, "connection reset by the board's host");
}

void MemoryBoard::put(const std::string& key, const std::string& value) {
    come();
    const std::lock_guard lock(mutex_);
    EXPECT_LE(key.size(), most_key_bytes);
    EXPECT_LE(value.size(), most_value_bytes);
    texts_[key] = value;
}

std::string MemoryBoard::put_first(const std::string& key, const std::string& value) {
    come();
    const std::lock_guard lock(mutex_);
    EXPECT_LE(value.size(), most_value_bytes);
    return texts_.emplace(key, value).first->second;
}

std::optional<std::string> MemoryBoard::get(const std::string& key) {
    come();
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(key);
    return found == texts_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace penstock::testing
