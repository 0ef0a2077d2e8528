// A rank's collectives of its steps, made one after the other beside compute.
#pragma once

#include "aio/words/error.h"
#include "zero_infinity/ranks/in_pieces.h"
#include "zero_infinity/ranks/transport.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::zero {

// `all` becomes the parts of all ranks, one behind the other.
struct GatherCall {
    std::span<const std::byte> shard;  // this rank's; is its place in `all`, or overlaps nothing
    std::span<std::byte> all;          // ranks × shard.size() bytes
};

// Who makes the inputs of a call.
enum class Inputs : std::uint8_t {
    there,       // nobody: they are there
    from_owner,  // the owner of the lane, who says ready()
    from_other,  // another thread, which does: a drive's, for instance
};

struct LaneOptions {
    std::vector<std::string> units;  // their names, for messages
    std::size_t piece_bytes = std::size_t{32} << 20;
};

struct LaneCounters {
    std::uint64_t calls = 0;            // that were made
    std::uint64_t gathered_bytes = 0;   // that came from other ranks
    std::uint64_t exchanged_bytes = 0;  // addends that came from other ranks
};

// What is posted, and in which order, is a function of the visits and of values that all ranks have agreed on, never of
// when something ends here: then it is the same on all ranks. Where it is not, the first call in which they differ ends
// the lane on all ranks, with the same words, before a byte of it is sent; calls before it may be ended, too.
//
// Two queues in the order of the posts, each with a thread. Control: every call is compared, as a record of one size,
// and a small one is made then; it waits for no ready() and for no gather. Bulk: gathers and reduces, each once it was
// compared, it is ready here, and the one before it is done. So a small call may be done before an earlier gather is.
//
// A transport's Error, a difference and fail() end the lane: the first cause is kept, and post, wait and, of what was
// not made, done throw it. All but a difference, which every rank finds by itself, abort both transports. One owner's
// thread opens, posts, waits and closes.
class Lane {
   public:
    using Number = std::uint64_t;  // of a call: counts from 1

    // The transports and `area`, ranks × piece_bytes for addends on their way, outlive the lane, and nobody else uses
    // them meanwhile. `control` carries what is small and in host memory. REQUIRES: two transports of the same ranks,
    // as many units and equal pieces on all ranks.
    Lane(Transport& bulk, Transport& control, std::span<std::byte> area, LaneOptions options);
    // Unless it was finished, as fail(). No other thread is in a call of the lane.
    ~Lane();

    // The memory of a call is the lane's until it is done, or the lane is gone: after an end it is undefined. Large
    // calls go in pieces. REQUIRES: unit < options.units.size().
    Number post_gather(std::uint32_t unit, const GatherCall& call, Inputs inputs);
    Number post_reduce(std::uint32_t unit, const ReduceCall& call, Inputs inputs);
    // A few bytes from each rank, as many on all: `mine` is copied, `all` becomes ranks × mine.size() bytes, in their
    // order. `what` is for messages ("the norm").
    Number post_small(std::string_view what, std::span<const std::byte> mine, std::span<std::byte> all);

    // Any thread, once for each call that was not ready when it was posted: its inputs are there, and what it writes
    // may be overwritten. Without effect once the lane has ended.
    void ready(Number number);
    bool done(Number number) const;  // any thread
    // Until it is done. REQUIRES: unless it is a small one, no gather or reduce up to it waits for inputs from the
    // owner.
    void wait(Number number);
    // Waits until all ranks have made all that they posted, and agree that it was the same. Nothing is posted behind
    // it.
    void finish();

    void fail(const Error& cause) noexcept;  // any thread
    LaneCounters counters() const;           // any thread

   private:
    class Calls;
    std::unique_ptr<Calls> calls_;
};

}  // namespace penstock::zero
