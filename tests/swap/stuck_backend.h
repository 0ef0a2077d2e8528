// Hands everything on until it is stuck; then nothing comes back any more.
#pragma once

#include "aio/backend.h"

#include <memory>
#include <utility>

namespace penstock::testing {

class StuckBackend final : public Backend {
   public:
    StuckBackend(std::unique_ptr<Backend> inner, const bool& stuck) : inner_(std::move(inner)), stuck_(stuck) {}
    bool submit(Attempt& attempt) override { return inner_->submit(attempt); }
    Attempt* reap(std::chrono::nanoseconds timeout) override { return stuck_ ? nullptr : inner_->reap(timeout); }
    void wake() noexcept override { inner_->wake(); }
    Attempt* abandon() noexcept override { return stuck_ ? nullptr : inner_->abandon(); }
    std::chrono::steady_clock::time_point now() const noexcept override { return inner_->now(); }
    std::size_t depth() const noexcept override { return inner_->depth(); }
    const char* name() const noexcept override { return "stuck"; }

   private:
    std::unique_ptr<Backend> inner_;
    const bool& stuck_;
};

}  // namespace penstock::testing
