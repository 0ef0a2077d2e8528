#include "aio/transfer_queue.h"

#include "aio/words/check.h"

#include <utility>

namespace penstock::aio {

void TransferQueue::push(Transfer& transfer) noexcept {
    transfer.next_ = nullptr;
    (tail_ == nullptr ? head_ : tail_->next_) = &transfer;
    tail_ = &transfer;
}

Transfer* TransferQueue::pop() noexcept {
    Transfer* transfer = head_;
    if (transfer == nullptr) return nullptr;
    head_ = std::exchange(transfer->next_, nullptr);
    if (head_ == nullptr) tail_ = nullptr;
    return transfer;
}

void TransferQueue::remove(Transfer& transfer) noexcept {
    Transfer* before = nullptr;
    Transfer* at = head_;
    while (at != nullptr && at != &transfer) before = std::exchange(at, at->next_);
    PENSTOCK_CHECK(at != nullptr, "the transfer is not in its queue");
    (before == nullptr ? head_ : before->next_) = std::exchange(transfer.next_, nullptr);
    if (tail_ == &transfer) tail_ = before;
}

}  // namespace penstock::aio
