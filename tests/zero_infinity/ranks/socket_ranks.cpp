#include "tests/zero_infinity/ranks/socket_ranks.h"

#include "aio/words/error.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

namespace penstock::testing {
namespace {

class SocketTransport final : public zero::Transport {
   public:
    SocketTransport(std::uint32_t rank, std::vector<int> to) : rank_(rank), to_(std::move(to)) {}
    ~SocketTransport() override {
        for (const int each : to_)
            if (each >= 0) ::close(each);
    }

    std::uint32_t rank() const noexcept override { return rank_; }
    std::uint32_t ranks() const noexcept override { return static_cast<std::uint32_t>(to_.size()); }
    std::string name() const override { return "sockets"; }
    void all_gather(std::span<const std::byte> mine, const zero::RankBlocks& all) override {
        if (mine.data() != all.of(rank_)) std::memcpy(all.of(rank_), mine.data(), mine.size());
        move([&](std::uint32_t) { return mine.data(); }, all);
    }
    void exchange(const zero::ConstRankBlocks& to, const zero::RankBlocks& from) override {
        std::memcpy(from.of(rank_), to.of(rank_), to.bytes);
        move([&](std::uint32_t rank) { return to.of(rank); }, from);
    }
    void abort(std::string_view) noexcept override {
        aborted_ = true;
        for (const int each : to_)
            if (each >= 0) ::shutdown(each, SHUT_RDWR);
    }

   private:
    // Both ways of all others at once, as far as each of them goes.
    template <typename Give>
    void move(Give give, const zero::RankBlocks& from) {
        std::vector<std::size_t> sent(ranks()), come(ranks());
        sent[rank_] = come[rank_] = from.bytes;
        const auto is_whole = [&](std::size_t bytes) { return bytes == from.bytes; };
        while (!std::ranges::all_of(sent, is_whole) || !std::ranges::all_of(come, is_whole)) {
            std::vector<pollfd> waits;
            for (std::uint32_t other = 0; other < ranks(); ++other) {
                const short in = come[other] < from.bytes ? POLLIN : 0, out = sent[other] < from.bytes ? POLLOUT : 0;
                waits.push_back({in != 0 || out != 0 ? to_[other] : -1, static_cast<short>(in | out), 0});
            }
            if (::poll(waits.data(), waits.size(), 30'000) <= 0) lost("nobody speaks");
            for (std::uint32_t other = 0; other < ranks(); ++other) {
                if ((waits[other].revents & POLLIN) != 0)
                    come[other] +=
                        took(::recv(to_[other], from.of(other) + come[other], from.bytes - come[other], MSG_DONTWAIT));
                if ((waits[other].revents & POLLOUT) != 0)
                    sent[other] += took(::send(to_[other], give(other) + sent[other], from.bytes - sent[other],
                                               MSG_DONTWAIT | MSG_NOSIGNAL));
                if ((waits[other].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0 &&
                    (waits[other].revents & POLLIN) == 0)
                    lost("it is gone");
            }
        }
    }
    std::size_t took(ssize_t bytes) const {
        if (bytes > 0) return static_cast<std::size_t>(bytes);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
        lost("it is gone");
    }
    [[noreturn]] void lost(const std::string& why) const {
        throw Error(ExitCode::peer_lost, aborted_ ? "the ranks have ended" : "a rank is lost: " + why);
    }

    std::uint32_t rank_;
    std::vector<int> to_;
    std::atomic<bool> aborted_ = false;
};

}  // namespace

SocketRanks::SocketRanks(std::uint32_t ranks) : ends_(ranks, std::vector<int>(ranks, -1)) {
    for (std::uint32_t one = 0; one < ranks; ++one)
        for (std::uint32_t other = one + 1; other < ranks; ++other) {
            int pair[2];
            if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
                throw Error(ExitCode::internal, "no sockets for ranks");
            ends_[one][other] = pair[0];
            ends_[other][one] = pair[1];
        }
}

SocketRanks::~SocketRanks() {
    close();
}

std::unique_ptr<zero::Transport> SocketRanks::become(std::uint32_t rank) {
    std::vector<int> own = std::exchange(ends_[rank], {});
    close();
    return std::make_unique<SocketTransport>(rank, std::move(own));
}

void SocketRanks::close() {
    for (std::vector<int>& rank : ends_)
        for (int& end : rank)
            if (end >= 0) ::close(std::exchange(end, -1));
}

}  // namespace penstock::testing
