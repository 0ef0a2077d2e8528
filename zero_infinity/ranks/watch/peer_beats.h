// Who of the ranks is silent: decided from what was read of the board, without a thread and without a clock.
#pragma once

#include "aio/words/enum_words.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::zero {

// What a rank says of itself, again and again, under its own key.
struct Beat {
    enum class State : std::uint8_t {
        on,        // its process runs, however slow its work is
        ended,     // it knows of a cause, and ends
        finished,  // it has made all that it wanted to
    };
    State state = State::on;
    std::uint64_t number = 0;  // another one each time
    std::string host;
    std::string at;  // "call 1312, gather of blocks.7"; empty: nothing was said

    bool operator==(const Beat&) const = default;
};

constexpr auto words_of(Beat::State) noexcept {
    using enum Beat::State;
    return std::array{Word{on, "on"}, Word{ended, "ended"}, Word{finished, "finished"}};
}

std::string beat_key(std::uint32_t rank);
std::string board_text(const Beat& beat);
std::optional<Beat> beat_of(std::string_view board_text);  // nothing where it is none

struct BeatTimes {
    using Time = std::chrono::nanoseconds;
    Time beat = std::chrono::seconds(1);       // from one look to the next: a rank looks and beats at once
    Time deadline = std::chrono::seconds(30);  // for the next beat of a rank
    Time doubt = std::chrono::seconds(3);      // the same where a connection is lost already
    Time arrival = std::chrono::seconds(300);  // for its first one
};

// A rank that has let its deadline pass.
struct Silence {
    std::uint32_t rank = 0;
    BeatTimes::Time lasted{0};
    std::optional<Beat> last;  // nothing: it has never beaten

    std::string words() const;  // "silent for 31 s; it was in call 1312, gather of blocks.7"
};

// What a rank knows of the others.
//
// A rank reads the three that come after it, round the ring, that are not at their end, and rank 0, with which the
// board often goes. So a look costs the same whether there are 4 ranks or 64. Of any number of silent ranks at least
// one comes right after a rank that is not: that one notices, and puts a cause, which all read.
//
// Time is this rank's own: of what passes between two looks, two beats count at most. Whoever was stopped for a minute,
// or whose machine was suspended, has thus made one look, by which the others have beaten on; it accuses nobody.
class PeerBeats {
   public:
    // REQUIRES: rank < ranks.
    PeerBeats(std::uint32_t rank, std::uint32_t ranks, BeatTimes times);

    // Whose beats the next look reads.
    std::vector<std::uint32_t> to_read() const;

    struct Read {
        std::uint32_t rank = 0;
        std::optional<Beat> beat;  // nothing stands there
    };
    // A look, so long after the one before: the rank whose deadline has passed, of several the one that has been silent
    // longest.
    std::optional<Silence> looked(BeatTimes::Time since_last, std::span<const Read> read);

    // A connection is lost, nobody says why: all are read from now on, and waited for as long as `times.doubt`.
    void begin_doubt();
    // It was long enough for anybody's silence to show.
    bool doubt_is_over() const;

    const std::optional<Beat>& last(std::uint32_t rank) const { return peers_.at(rank).last; }
    bool is_at_end(std::uint32_t rank) const;  // as far as it was read

   private:
    struct Peer {
        std::optional<Beat> last;
        BeatTimes::Time silent{0};
    };
    BeatTimes::Time deadline_of(const Peer& peer) const;

    std::uint32_t rank_;
    BeatTimes times_;
    std::vector<Peer> peers_;
    std::optional<BeatTimes::Time> doubt_;  // so long already
};

}  // namespace penstock::zero
