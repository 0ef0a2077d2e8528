// The arithmetic that a step does on host memory, on tiles larger than the caches: on one thread, and where a second
// argument says so on as many as the machine has.
//   penstock bench pieces --filter 'copy|triad|hash|norm|adamw'
// "bytes_per_second" counts what each piece reads and writes of memory, once (memory_work.h). `penstock bench
// optimizer` compares the updates with the triad, and each other, in turns.
#include "bench/harness/memory_work.h"
#include "pinned_pool/region.h"
#include "swap/format/hash.h"
#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/threads/usable_cores.h"

#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>

namespace penstock::bench {
namespace {

constexpr std::uint64_t tile_numel = 8U << 20;

void count_bytes(benchmark::State& state, std::uint64_t bytes) {
    state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * static_cast<std::int64_t>(state.iterations()));
}

// The yardstick: what one thread copies.
void copy(benchmark::State& state) {
    const pool::Region from(4 * tile_numel, 1, pool::Registration::none),
        to(4 * tile_numel, 1, pool::Registration::none);
    for (auto _ : state) {
        std::memcpy(to.data(), from.data(), to.bytes());
        benchmark::ClobberMemory();
    }
    count_bytes(state, 2 * to.bytes());
}
BENCHMARK(copy);

void hash(benchmark::State& state) {
    const pool::Region tile(4 * tile_numel, 1, pool::Registration::none);
    for (auto _ : state) benchmark::DoNotOptimize(store::hash_tile({tile.data(), tile.bytes()}, {}));
    count_bytes(state, tile.bytes());
}
BENCHMARK(hash);

void norm(benchmark::State& state, zero::PlaneType type) {
    const pool::Region gradient(4 * tile_numel, 1, pool::Registration::none);
    for (auto _ : state) benchmark::DoNotOptimize(zero::sum_of_squares({gradient.data(), type, tile_numel}));
    count_bytes(state, tile_numel * bytes_of(type));
}
BENCHMARK_CAPTURE(norm, bf16, zero::PlaneType::bf16);
BENCHMARK_CAPTURE(norm, fp32, zero::PlaneType::fp32);

// An optimizer that has no kernel for encoded elements, as a user's own.
class Plain final : public zero::Optimizer {
   public:
    std::string name() const override { return inner_->name(); }
    std::uint32_t moments() const noexcept override { return inner_->moments(); }
    zero::MomentKind moment_kind(std::uint32_t moment) const noexcept override { return inner_->moment_kind(moment); }
    void update(const zero::UpdateSpan& span, const zero::StepValues& values) const noexcept override {
        inner_->update(span, values);
    }

   private:
    std::unique_ptr<zero::Optimizer> inner_ = zero::make_adamw({});
};

void steps(benchmark::State& state, std::unique_ptr<MemoryWork> work) {
    zero::Workers workers(static_cast<unsigned>(state.range(0)));
    for (auto _ : state) work->step(workers);
    count_bytes(state, work->bytes_of_step());
}

void triad(benchmark::State& state) {
    steps(state, make_triad(tile_numel));
}

// The optimizer alone on resident fp32, without codec: what the fused update is compared with.
void adamw_alone(benchmark::State& state) {
    steps(state, make_plain_update(zero::make_adamw({}), tile_numel));
}

void adamw(benchmark::State& state, const zero::Codec& codec, zero::PlaneType gradient_type) {
    steps(state, make_tile_update(codec, gradient_type, zero::make_adamw({}), tile_numel));
}

void own_optimizer(benchmark::State& state, const zero::Codec& codec) {
    steps(state, make_tile_update(codec, zero::PlaneType::bf16, std::make_unique<Plain>(), tile_numel));
}

void one_and_all_threads(benchmark::internal::Benchmark* each) {
    each->ArgName("threads")->Arg(1)->UseRealTime();
    const unsigned all = zero::UsableCores::read().count;
    if (all > 1) each->Arg(all);
}

BENCHMARK(triad)->Apply(one_and_all_threads);
BENCHMARK(adamw_alone)->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(adamw, split, zero::split_codec(), zero::PlaneType::bf16)->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(adamw, split_fp32_gradient, zero::split_codec(), zero::PlaneType::fp32)->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(adamw, plain_fp32, zero::plain_fp32_codec(), zero::PlaneType::fp32)->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(adamw, compact, zero::compact_codec(), zero::PlaneType::bf16)->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(own_optimizer, split, zero::split_codec())->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(own_optimizer, plain_fp32, zero::plain_fp32_codec())->Apply(one_and_all_threads);

}  // namespace
}  // namespace penstock::bench
