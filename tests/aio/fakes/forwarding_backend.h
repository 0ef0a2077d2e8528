// What backends of tests have in common that change what another one does: all else goes on to that one.
#pragma once

#include "aio/backend.h"

#include <memory>
#include <utility>

namespace penstock::testing {

class ForwardingBackend : public aio::Backend {
   public:
    explicit ForwardingBackend(std::unique_ptr<aio::Backend> inner) : inner_(std::move(inner)) {}
    bool submit(aio::Attempt& attempt) override { return inner_->submit(attempt); }
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override { return inner_->reap(timeout); }
    void wake() noexcept override { inner_->wake(); }
    aio::Attempt* abandon() noexcept override { return inner_->abandon(); }
    std::chrono::steady_clock::time_point now() const noexcept override { return inner_->now(); }
    std::size_t depth() const noexcept override { return inner_->depth(); }

   protected:
    std::unique_ptr<aio::Backend> inner_;
};

}  // namespace penstock::testing
