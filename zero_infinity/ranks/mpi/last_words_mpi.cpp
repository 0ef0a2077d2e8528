#include "zero_infinity/ranks/mpi/last_words_mpi.h"

#include "aio/words/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

namespace penstock::zero {

LastWords::LastWords(MPI_Comm ranks) : ranks_(ranks) {
    int own = 0, count = 0;
    MPI_Comm_rank(ranks, &own);
    MPI_Comm_size(ranks, &count);
    own_ = static_cast<std::uint32_t>(own);
    sending_.assign(static_cast<std::size_t>(count), MPI_REQUEST_NULL);
    MPI_Irecv(heard_.data(), static_cast<int>(heard_.size()), MPI_BYTE, MPI_ANY_SOURCE, 0, ranks_, &hearing_);
}

void LastWords::say(std::string_view cause) noexcept {
    const std::lock_guard lock(mutex_);
    if (said_) return;
    by_ = own_;
    std::copy_n(cause.begin(), std::min(cause.size(), text_.size() - 1), text_.begin());
    for (std::size_t peer = 0; peer < sending_.size(); ++peer)
        if (peer != own_)
            MPI_Isend(text_.data(), static_cast<int>(text_.size()), MPI_BYTE, static_cast<int>(peer), 0, ranks_,
                      &sending_[peer]);
    said_ = true;
}

bool LastWords::listen() noexcept {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || said_) return said_;
    int come = 0;
    MPI_Status status;
    if (MPI_Test(&hearing_, &come, &status) != MPI_SUCCESS || come == 0) return false;
    by_ = static_cast<std::uint32_t>(status.MPI_SOURCE);
    text_ = heard_;
    said_ = true;
    return true;
}

bool LastWords::is_said_before(std::chrono::milliseconds at_most) noexcept {
    const auto end = std::chrono::steady_clock::now() + at_most;
    const std::lock_guard lock(mutex_);
    while (own_ > 0 && by_ == own_ && std::chrono::steady_clock::now() < end) {
        int come = 0;
        MPI_Status status;
        if (MPI_Test(&hearing_, &come, &status) != MPI_SUCCESS) return false;
        if (come != 0 && static_cast<std::uint32_t>(status.MPI_SOURCE) < own_ && heard_ == text_) return true;
        if (come != 0)
            MPI_Irecv(heard_.data(), static_cast<int>(heard_.size()), MPI_BYTE, MPI_ANY_SOURCE, 0, ranks_, &hearing_);
        else
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

Error LastWords::error() const {
    const std::lock_guard lock(mutex_);
    PENSTOCK_CHECK(said_, "nothing was said");
    const std::string cause(text_.data(), strnlen(text_.data(), text_.size()));
    return {ExitCode::peer_lost, by_ == own_ ? cause : fmt::format("rank {} has ended: {}", by_, cause)};
}

std::optional<std::uint32_t> LastWords::other() const {
    const std::lock_guard lock(mutex_);
    return said_ && by_ != own_ ? std::optional(by_) : std::nullopt;
}

void LastWords::see_off(std::chrono::milliseconds at_most) noexcept {
    const auto end = std::chrono::steady_clock::now() + at_most;
    const std::lock_guard lock(mutex_);
    for (int gone = 0; std::chrono::steady_clock::now() < end;) {
        MPI_Testall(static_cast<int>(sending_.size()), sending_.data(), &gone, MPI_STATUSES_IGNORE);
        if (gone != 0) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

void LastWords::close() {
    const std::lock_guard lock(mutex_);
    MPI_Cancel(&hearing_);
    MPI_Wait(&hearing_, MPI_STATUS_IGNORE);
}

}  // namespace penstock::zero
