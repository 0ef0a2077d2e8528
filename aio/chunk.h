// A piece of a transfer that is in flight, and what its last attempt means. Used by io*.cpp, device_queue.cpp,
// judge.cpp and transfer.cpp.
#pragma once

#include "aio/backend.h"
#include "aio/transfer.h"
#include "aio/words/io_error.h"

#include <chrono>
#include <cstdint>
#include <optional>

namespace penstock::aio {

struct DeviceQueue;

// While something lasting is in flight.
inline constexpr int looks_per_deadline = 4;

// The Attempt's data, offset and bytes are what is still to move.
struct Chunk : Attempt {
    enum class State : std::uint8_t {
        free,         // belongs to no transfer
        handed_over,  // the backend has it
        resting,      // pauses before a retry
    };
    State state = State::free;
    Urgency urgency = Urgency::demand;  // its transfer's when it was cut
    std::uint32_t issued_bytes = 0;     // when it was cut: its share of the bytes in flight
    int tries = 0;                      // attempts since the last progress
    Transfer* transfer = nullptr;
    DeviceQueue* queue = nullptr;
    std::chrono::steady_clock::time_point submitted;  // the last attempt
    std::chrono::steady_clock::time_point alive;      // the same, or when the device was last seen at work for it
    bool lasting = false;                             // takes as long as other writes of the device: see Io::listen()
    std::optional<std::uint64_t> sectors_written;     // of the device, when it was last looked at
    std::chrono::steady_clock::time_point due;        // when resting: the next one
    Chunk* next_idle = nullptr;                       // in the list of the free or of the resting
};

struct JudgeRules {
    std::uint32_t alignment_bytes = 1;  // where an attempt may begin: direct I/O must resume at such an offset
    int tries = 1;                      // attempts without progress
    bool file_ends = false;             // where the attempt ended: what it lacks is not there
};

struct Judgement {
    enum class Verdict : std::uint8_t {
        finished,  // all bytes moved
        resume,    // short: the chunk was advanced, attempt it again
        retry,     // nothing moved, but it may with the next attempt
        failed,    // errno_value says why, 0: the device moved nothing; the chunk stands at the first byte not moved
    };
    Verdict verdict = Verdict::finished;
    std::uint32_t moved_bytes = 0;  // that count
    int errno_value = 0;
};

// Reads chunk.result of an attempt that has come back, and advances the chunk over what was moved.
Judgement judge(Chunk& chunk, const JudgeRules& rules) noexcept;

// Whether there is such a class: of reads demand, prefetch and scrub, of writes demand, write_back and scrub.
bool has_urgency(IoKind kind, Urgency urgency) noexcept;

// Checks what TransferRequest asks of its maker.
void check_request(const TransferRequest& request);

}  // namespace penstock::aio
