#include "bench/optimizer/torch_optimizer.h"

#include "bench/harness/filled.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/version.h>

#include <vector>

namespace penstock::bench {
namespace {

class TorchAdamW final : public MemoryWork {
   public:
    explicit TorchAdamW(std::uint64_t numel) : numel_(numel), step_(at::zeros({}, at::kFloat)) {
        for (std::vector<at::Tensor>* list : {&parameter_, &gradient_, &m_, &v_}) {
            memory_.push_back(filled(4 * numel));
            list->push_back(at::from_blob(memory_.back().data(), {static_cast<std::int64_t>(numel)}, at::kFloat));
        }
    }

    void step(zero::Workers& workers) override {
        const auto threads = static_cast<int>(workers.thread_count());
        if (at::get_num_threads() != threads) at::set_num_threads(threads);
        step_.add_(1);
        at::_fused_adamw_(parameter_, gradient_, m_, v_, {}, {step_}, 1e-6, 0.9, 0.999, 0.01, 1e-8, false, false);
    }
    std::uint64_t bytes_of_step() const noexcept override { return 28 * numel_; }

   private:
    const std::uint64_t numel_;
    std::vector<pool::Region> memory_;
    std::vector<at::Tensor> parameter_, gradient_, m_, v_;
    at::Tensor step_;
};

}  // namespace

std::string torch_optimizer_name() {
    return "torch " TORCH_VERSION " fused AdamW in C++";
}

std::unique_ptr<MemoryWork> make_torch_adamw(std::uint64_t numel) {
    return std::make_unique<TorchAdamW>(numel);
}

}  // namespace penstock::bench
