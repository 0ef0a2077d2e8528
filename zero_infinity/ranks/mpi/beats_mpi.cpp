#include "zero_infinity/ranks/mpi/beats_mpi.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t last_beat = std::numeric_limits<std::uint64_t>::max();

std::uint32_t count_of(MPI_Comm ranks) {
    int count = 0;
    MPI_Comm_size(ranks, &count);
    return static_cast<std::uint32_t>(count);
}

std::uint32_t own_of(MPI_Comm ranks) {
    int own = 0;
    MPI_Comm_rank(ranks, &own);
    return static_cast<std::uint32_t>(own);
}

// As each of them knows by itself.
std::vector<std::uint32_t> readers_of(std::uint32_t own, std::uint32_t ranks, BeatTimes times) {
    std::vector<std::uint32_t> readers;
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        const std::vector<std::uint32_t> read = PeerBeats(peer, ranks, times).to_read();
        if (std::ranges::find(read, own) != read.end()) readers.push_back(peer);
    }
    return readers;
}

}  // namespace

BeatsMpi::BeatsMpi(MPI_Comm ranks, BeatTimes times, LastWords& words)
    : ranks_(ranks),
      own_(own_of(ranks)),
      readers_(readers_of(own_, count_of(ranks), times)),
      peers_(own_, count_of(ranks), times),
      heard_(count_of(ranks)) {
    await_next();
    thread_ = std::thread([this, times, &words] { run(times, words); });
}

BeatsMpi::~BeatsMpi() {
    if (!thread_.joinable()) return;
    stop();
    static_cast<void>(mail_.release());
}

void BeatsMpi::stop() {
    {
        const std::lock_guard lock(mutex_);
        is_stopped_ = true;
    }
    stopped_.notify_all();
    thread_.join();
}

bool BeatsMpi::is_over(BeatTimes::Time until_next) {
    std::unique_lock lock(mutex_);
    return stopped_.wait_for(lock, until_next, [this] { return is_stopped_; });
}

void BeatsMpi::run(const BeatTimes& times, LastWords& words) {
    std::uint64_t number = 0;
    auto looked_at = Clock::now();
    do {
        send(++number);
        receive();
        std::vector<PeerBeats::Read> read;
        for (const std::uint32_t peer : peers_.to_read())
            read.push_back({peer, heard_[peer] == 0 ? std::nullopt : std::optional(Beat{.number = heard_[peer]})});
        const auto now = Clock::now();
        const auto silence = peers_.looked(now - std::exchange(looked_at, now), read);
        if (!silence) continue;
        words.say(fmt::format("rank {} is {}: its process is stopped, or gone", silence->rank, silence->words()));
        return;
    } while (!is_over(times.beat));
}

void BeatsMpi::send(std::uint64_t number) {
    std::erase_if(mail_->sent, [](Sent& each) {
        int gone = 0;
        MPI_Test(&each.request, &gone, MPI_STATUS_IGNORE);
        return gone != 0;
    });
    for (const std::uint32_t reader : readers_) {
        Sent& beat = mail_->sent.emplace_back(Sent{number});
        MPI_Isend(&beat.number, sizeof beat.number, MPI_BYTE, static_cast<int>(reader), 0, ranks_, &beat.request);
    }
}

void BeatsMpi::receive() {
    for (int come = 1; mail_->coming != MPI_REQUEST_NULL;) {
        MPI_Status status;
        if (MPI_Test(&mail_->coming, &come, &status) != MPI_SUCCESS || come == 0) return;
        heard_[static_cast<std::size_t>(status.MPI_SOURCE)] = mail_->come;
        await_next();
    }
}

void BeatsMpi::await_next() {
    MPI_Irecv(&mail_->come, sizeof mail_->come, MPI_BYTE, MPI_ANY_SOURCE, 0, ranks_, &mail_->coming);
}

// Beats come in the order in which they were sent: behind a rank's last one nothing does.
void BeatsMpi::finish() {
    stop();
    send(last_beat);
    const std::vector<std::uint32_t> read = peers_.to_read();
    while (!std::ranges::all_of(read, [this](std::uint32_t peer) { return heard_[peer] == last_beat; })) {
        receive();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    MPI_Cancel(&mail_->coming);
    MPI_Wait(&mail_->coming, MPI_STATUS_IGNORE);
    for (Sent& each : mail_->sent) MPI_Wait(&each.request, MPI_STATUS_IGNORE);
}

}  // namespace penstock::zero
