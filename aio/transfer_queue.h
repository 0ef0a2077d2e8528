// Transfers in a row. Used by device_queue.cpp and io*.cpp.
#pragma once

#include "aio/transfer.h"

namespace penstock::aio {

// Intrusive, first in first out.
class TransferQueue {
   public:
    bool empty() const noexcept { return head_ == nullptr; }
    Transfer* head() const noexcept { return head_; }
    void push(Transfer& transfer) noexcept;
    Transfer* pop() noexcept;
    // From wherever it stands, in as many steps as it has others before it. REQUIRES: it is in this queue.
    void remove(Transfer& transfer) noexcept;

   private:
    Transfer* head_ = nullptr;
    Transfer* tail_ = nullptr;
};

}  // namespace penstock::aio
