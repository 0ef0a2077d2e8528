// A file that nobody else writes to: not even the kernel, for a process that has ended.
#pragma once

#include "aio/file.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace penstock::store {

enum class Sharing : std::uint8_t { exclusive, shared };

// Told once, on the caller's thread, when a wait for a file has lasted long enough to be noticed: one line that says
// for what, and how long at most. Throws nothing.
using WaitNotice = std::function<void(const std::string& line)>;

// flock() on the descriptor that transfers go through. A request that is with the kernel keeps its file open, so of a
// process that was killed this lock lasts as long as its last write may still land, where the lock on the directory
// ends with the process. The File outlives it; it is destroyed when nothing is in flight on the file, and gives the
// lock up even where a child of this process has the descriptor, too.
class FileHold {
   public:
    // Waits for who holds it, at most `patience`, then throws Error (storage).
    FileHold(const aio::File& file, Sharing sharing, std::chrono::nanoseconds patience, const WaitNotice& notice = {});
    ~FileHold();
    FileHold(FileHold&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileHold& operator=(FileHold&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }

   private:
    int fd_ = -1;
};

}  // namespace penstock::store
