#include "zero_infinity/ranks/watch/peer_beats.h"

#include "aio/words/check.h"
#include "zero_infinity/ranks/watch/board_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace penstock::zero {
namespace {

constexpr std::size_t most_line_bytes = 300;
constexpr std::uint32_t watched_by_each = 3;  // two may be silent at once, and busy, before a third is missed

// Of the text up to the next end of a line, which is taken off.
std::string_view take_line(std::string_view& text) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return line;
}

}  // namespace

std::string beat_key(std::uint32_t rank) {
    return fmt::format("beat/{}", rank);
}

std::string board_text(const Beat& beat) {
    return fmt::format("{}\n{}\n{}\n{}", beat.number, word_of(beat.state), board_line(beat.host, most_line_bytes),
                       board_line(beat.at, most_line_bytes));
}

std::optional<Beat> beat_of(std::string_view text) {
    Beat beat;
    const std::string_view number = take_line(text), state = take_line(text);
    const auto read = std::from_chars(number.data(), number.data() + number.size(), beat.number);
    if (read.ec != std::errc() || read.ptr != number.data() + number.size()) return {};
    const auto known = find_word<Beat::State>(state);
    if (!known) return {};
    beat.state = *known;
    beat.host = take_line(text);
    beat.at = take_line(text);
    return beat;
}

std::string Silence::words() const {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(lasted).count();
    if (!last) return fmt::format("it has not come within {} s", seconds);
    return fmt::format("silent for {} s{}{}", seconds, last->at.empty() ? "" : "; it was in ", last->at);
}

PeerBeats::PeerBeats(std::uint32_t rank, std::uint32_t ranks, BeatTimes times)
    : rank_(rank), times_(times), peers_(ranks) {
    PENSTOCK_CHECK(rank < ranks, "rank {} of {}", rank, ranks);
    PENSTOCK_CHECK(times.beat > BeatTimes::Time{0}, "no time from one beat to the next");
}

bool PeerBeats::is_at_end(std::uint32_t rank) const {
    const std::optional<Beat>& last = peers_.at(rank).last;
    return last && last->state != Beat::State::on;
}

std::vector<std::uint32_t> PeerBeats::to_read() const {
    const auto ranks = static_cast<std::uint32_t>(peers_.size());
    std::vector<std::uint32_t> wanted;
    for (std::uint32_t step = 1; step < ranks; ++step) {
        const std::uint32_t peer = (rank_ + step) % ranks;
        if (!is_at_end(peer) && (doubt_ || wanted.size() < watched_by_each || peer == 0)) wanted.push_back(peer);
    }
    return wanted;
}

std::optional<Silence> PeerBeats::looked(BeatTimes::Time since_last, std::span<const Read> read) {
    const BeatTimes::Time passed = std::min(since_last, 2 * times_.beat);
    if (doubt_) *doubt_ += passed;
    std::optional<Silence> longest;
    for (const Read& each : read) {
        Peer& peer = peers_.at(each.rank);
        const bool has_beaten = each.beat != peer.last;
        if (has_beaten) peer.last = each.beat;
        peer.silent = has_beaten ? BeatTimes::Time{0} : peer.silent + passed;
        if (peer.silent < deadline_of(peer)) continue;
        if (!longest || peer.silent > longest->lasted) longest = {each.rank, peer.silent, peer.last};
    }
    return longest;
}

BeatTimes::Time PeerBeats::deadline_of(const Peer& peer) const {
    if (doubt_) return times_.doubt;
    return peer.last ? times_.deadline : times_.arrival;
}

// Who was slow before it is not therefore who is gone.
void PeerBeats::begin_doubt() {
    if (doubt_) return;
    doubt_ = BeatTimes::Time{0};
    for (Peer& peer : peers_) peer.silent = BeatTimes::Time{0};
}

// Two beats more: a last one may have been on its way.
bool PeerBeats::doubt_is_over() const {
    return doubt_ && *doubt_ >= times_.doubt + 2 * times_.beat;
}

}  // namespace penstock::zero
