#include "tests/swap/kills/kill_model.h"

#include "aio/words/check.h"

#include <utility>

namespace penstock::testing {

void KillModel::told(const Told& message) {
    switch (message.kind) {
        case Told::Kind::created:
        case Told::Kind::opened:
        case Told::Kind::struck:
            return;
        case Told::Kind::wrote:
            writes_.push_back(message);
            return;
        case Told::Kind::committing:
            under_way_ = acknowledged_;
            under_way_->generation = acknowledged_.generation ? *acknowledged_.generation + 1 : 0;
            under_way_->stamp = message.a;
            for (const Told& write : writes_) under_way_->versions.at(write.a) = write.b;
            return;
        case Told::Kind::committed:
            PENSTOCK_CHECK(under_way_ && under_way_->generation == message.a, "generation {} was not under way",
                           message.a);
            acknowledged_ = *std::exchange(under_way_, std::nullopt);
            writes_.clear();
            committed_in_this_life_ = true;
            return;
    }
}

void KillModel::resume_with(Image found) {
    acknowledged_ = std::move(found);
    under_way_.reset();
    writes_.clear();
    committed_in_this_life_ = false;
}

}  // namespace penstock::testing
