#include "bench/harness/memory_work.h"

#include "aio/words/check.h"
#include "bench/harness/filled.h"
#include "bench/harness/triad.h"
#include "zero_infinity/optimizer/update.h"

#include <utility>
#include <vector>

namespace penstock::bench {
namespace {

float* floats(const pool::Region& region, std::uint64_t first = 0) {
    return reinterpret_cast<float*>(region.data()) + first;
}

std::uint64_t checked(std::uint64_t numel) {
    PENSTOCK_CHECK(numel > 0 && numel % work_piece_numel == 0, "{} elements", numel);
    return numel;
}

enum class Into : std::uint8_t { third_array, first_array };

class TriadWork final : public MemoryWork {
   public:
    TriadWork(std::uint64_t numel, Into into)
        : numel_(checked(numel)),
          first_(filled(4 * numel)),
          second_(filled(4 * numel)),
          third_(into == Into::third_array ? filled(4 * numel) : pool::Region()),
          to_(into == Into::third_array ? third_ : first_) {}

    void step(zero::Workers& workers) override {
        const Triad triad = widest_triad();
        scalar_ = -scalar_;  // in place, values must not grow without bound
        workers.run(numel_ / work_piece_numel, [&](std::size_t piece) {
            const std::uint64_t at = piece * work_piece_numel;
            triad(floats(to_, at), floats(first_, at), floats(second_, at), scalar_, work_piece_numel);
        });
    }
    std::uint64_t bytes_of_step() const noexcept override { return 12 * numel_; }

   private:
    const std::uint64_t numel_;
    const pool::Region first_, second_, third_;
    const pool::Region& to_;
    float scalar_ = 0.25F;
};

class PlainUpdate final : public MemoryWork {
   public:
    PlainUpdate(std::unique_ptr<zero::Optimizer> optimizer, std::uint64_t numel)
        : numel_(checked(numel)),
          optimizer_(std::move(optimizer)),
          master_(filled(4 * numel)),
          gradient_(filled(4 * numel)) {
        for (std::uint32_t i = 0; i < optimizer_->moments(); ++i) moments_.push_back(filled(4 * numel));
    }

    void step(zero::Workers& workers) override {
        const zero::StepValues values{.step = ++step_, .learning_rate = 1e-6};
        workers.run(numel_ / work_piece_numel, [&](std::size_t piece) {
            const std::uint64_t at = piece * work_piece_numel;
            zero::UpdateSpan span;
            span.master = floats(master_, at);
            for (std::size_t i = 0; i < moments_.size(); ++i) span.moments[i] = floats(moments_[i], at);
            span.gradient = floats(gradient_, at);
            span.count = work_piece_numel;
            optimizer_->update(span, values);
        });
    }
    std::uint64_t bytes_of_step() const noexcept override { return numel_ * (4 + 8 * (1 + moments_.size())); }

   private:
    const std::uint64_t numel_;
    const std::unique_ptr<zero::Optimizer> optimizer_;
    const pool::Region master_, gradient_;
    std::vector<pool::Region> moments_;
    std::uint64_t step_ = 0;
};

class TileWork final : public MemoryWork {
   public:
    TileWork(const zero::Codec& codec, zero::PlaneType gradient, std::unique_ptr<zero::Optimizer> optimizer,
             std::uint64_t numel)
        : optimizer_(std::move(optimizer)),
          format_(state_format(codec, *optimizer_)),
          gradient_type_(gradient),
          gradient_(filled(4 * checked(numel))),
          weights_(format_.weights_bytes() * numel, 1, pool::Registration::none),
          states_(format_.states_bytes(numel), 1, pool::Registration::none),
          tile_{weights_.data(), states_.data(), numel} {
        encode_initial(format_, floats(gradient_), tile_);
    }

    void step(zero::Workers& workers) override {
        zero::TileUpdate update;
        update.format = &format_;
        update.optimizer = optimizer_.get();
        update.values = {.step = ++step_, .learning_rate = 1e-6};
        const auto wrong = update_tile(update, tile_, {gradient_.data(), gradient_type_, tile_.numel}, workers);
        PENSTOCK_CHECK(!wrong, "element {} is not finite after step {}", *wrong, step_);
    }
    std::uint64_t bytes_of_step() const noexcept override {
        return 2 * (format_.weights_bytes() * tile_.numel + format_.states_bytes(tile_.numel)) +
               bytes_of(gradient_type_) * tile_.numel;
    }

   private:
    const std::unique_ptr<zero::Optimizer> optimizer_;
    const zero::StateFormat format_;
    const zero::PlaneType gradient_type_;
    const pool::Region gradient_, weights_, states_;
    const zero::TileView tile_;
    std::uint64_t step_ = 0;
};

}  // namespace

std::unique_ptr<MemoryWork> make_triad(std::uint64_t numel) {
    return std::make_unique<TriadWork>(numel, Into::third_array);
}

std::unique_ptr<MemoryWork> make_triad_in_place(std::uint64_t numel) {
    return std::make_unique<TriadWork>(numel, Into::first_array);
}

std::unique_ptr<MemoryWork> make_plain_update(std::unique_ptr<zero::Optimizer> optimizer, std::uint64_t numel) {
    return std::make_unique<PlainUpdate>(std::move(optimizer), numel);
}

std::unique_ptr<MemoryWork> make_tile_update(const zero::Codec& codec, zero::PlaneType gradient,
                                             std::unique_ptr<zero::Optimizer> optimizer, std::uint64_t numel) {
    return std::make_unique<TileWork>(codec, gradient, std::move(optimizer), numel);
}

}  // namespace penstock::bench
