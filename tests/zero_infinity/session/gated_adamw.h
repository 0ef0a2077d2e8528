// AdamW that waits at a gate, so that a test knows what happens before an update is made.
#pragma once

#include "zero_infinity/optimizer/optimizers.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace penstock::testing {

// Any thread. Open at first.
class Gate {
   public:
    void close() {
        const std::lock_guard lock(mutex_);
        open_ = false;
        passed_ = 0;
    }
    void open() {
        const std::lock_guard lock(mutex_);
        open_ = true;
        opened_.notify_all();
    }
    void open_for(std::size_t passes) {
        const std::lock_guard lock(mutex_);
        permits_ = passes;
        opened_.notify_all();
    }
    bool is_open() {
        const std::lock_guard lock(mutex_);
        return open_;
    }
    std::size_t passed() {  // since it was closed
        const std::lock_guard lock(mutex_);
        return passed_;
    }
    // Not for ever: a test that waits in vain is to fail and not to hang.
    void pass() {
        std::unique_lock lock(mutex_);
        opened_.wait_for(lock, std::chrono::seconds(2), [&] { return open_ || permits_ > 0; });
        if (permits_ > 0) --permits_;
        ++passed_;
    }

   private:
    std::mutex mutex_;
    std::condition_variable opened_;
    bool open_ = true;
    std::size_t passed_ = 0, permits_ = 0;
};

class GatedAdamW final : public zero::Optimizer {
   public:
    explicit GatedAdamW(std::shared_ptr<Gate> gate) : gate_(std::move(gate)), inner_(zero::make_adamw({})) {}
    std::string name() const override { return inner_->name(); }
    std::uint32_t moments() const noexcept override { return inner_->moments(); }
    zero::MomentKind moment_kind(std::uint32_t moment) const noexcept override { return inner_->moment_kind(moment); }
    void update(const zero::UpdateSpan& span, const zero::StepValues& values) const noexcept override {
        gate_->pass();
        inner_->update(span, values);
    }

   private:
    std::shared_ptr<Gate> gate_;
    std::unique_ptr<zero::Optimizer> inner_;
};

}  // namespace penstock::testing
