// Hands everything on until it is stuck; then nothing comes back any more.
#pragma once

#include "tests/aio/fakes/forwarding_backend.h"

#include <memory>
#include <utility>

namespace penstock::testing {

class StuckBackend final : public ForwardingBackend {
   public:
    StuckBackend(std::unique_ptr<aio::Backend> inner, const bool& stuck)
        : ForwardingBackend(std::move(inner)), stuck_(stuck) {}
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override { return stuck_ ? nullptr : inner_->reap(timeout); }
    aio::Attempt* abandon() noexcept override { return stuck_ ? nullptr : inner_->abandon(); }
    const char* name() const noexcept override { return "stuck"; }

   private:
    const bool& stuck_;
};

}  // namespace penstock::testing
