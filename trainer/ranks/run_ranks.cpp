#include "trainer/ranks/run_ranks.h"

#include "zero_infinity/ranks/collectives.h"

namespace penstock::trainer {

zero::Partition RunRanks::place() const noexcept {
    if (joined_ == nullptr) return {};
    return {joined_->place().rank, joined_->place().ranks};
}

int RunRanks::gpu(int gpus) const noexcept {
    return gpus > 0 ? static_cast<int>(joined_->place().local_rank) % gpus : 0;
}

zero::RankWays RunRanks::ways() const {
    if (!several()) return {};
    return {.control = &joined_->control(), .bulk = &joined_->bulk()};
}

std::unique_ptr<zero::Communicator> RunRanks::communicator() const {
    if (!several()) return std::make_unique<zero::LocalCommunicator>();
    return std::make_unique<zero::Collectives>(joined_->control());
}

bool RunRanks::is_told_here() {
    return !several() || joined_->is_told_here();
}

void RunRanks::finish() {
    if (joined_ != nullptr) joined_->finish();
}

void RunRanks::failed(const Failure& failure) noexcept {
    if (several()) joined_->control().abort(failure.message);
}

}  // namespace penstock::trainer
