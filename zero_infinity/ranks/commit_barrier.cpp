#include "zero_infinity/ranks/commit_barrier.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::zero {

void CommitBarrier::heard(std::span<const std::uint64_t> of_all) {
    PENSTOCK_CHECK(of_all.size() == of_all_.size(), "{} numbers of {} ranks", of_all.size(), of_all_.size());
    const std::uint64_t least = *std::min_element(of_all.begin(), of_all.end());
    least_ = std::max(least_.value_or(least), least);
}

void CommitBarrier::before_write(std::uint64_t next) {
    PENSTOCK_CHECK(next == mine_ + 1, "generation {} is written after {}", next, mine_);
    if (may_write(next)) return;
    gather(*communicator_, "what is committed", mine_, of_all_);
    heard(of_all_);
    if (may_write(next)) return;
    const auto behind = std::min_element(of_all_.begin(), of_all_.end());
    throw Error(ExitCode::usage,
                fmt::format("rank {} has committed generation {} where rank {} has committed {}: the ranks do not make "
                            "the same steps. Let all of them make the same calls in the same order.",
                            behind - of_all_.begin(), *behind, communicator_->rank(), mine_));
}

}  // namespace penstock::zero
