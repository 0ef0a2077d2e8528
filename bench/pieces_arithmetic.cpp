// The arithmetic that a step does on host memory, on tiles larger than the caches: on one thread, and where a second
// argument says so on as many as the machine has.
//   penstock bench pieces --filter 'copy|triad|hash|norm|adamw'
// "bytes_per_second" counts what each piece reads and writes of memory, once (memory_work.h). `penstock bench
// optimizer` compares the updates with the triad, and each other, in turns.
#include "bench/memory_work.h"
#include "pinned_pool/region.h"
#include "swap/hash.h"
#include "zero_infinity/gradient.h"
#include "zero_infinity/optimizers.h"
#include "zero_infinity/usable_cores.h"

#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>

namespace penstock {
namespace {

constexpr std::uint64_t tile_numel = 8U << 20;

void count_bytes(benchmark::State& state, std::uint64_t bytes) {
    state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * static_cast<std::int64_t>(state.iterations()));
}

// The yardstick: what one thread copies.
void copy(benchmark::State& state) {
    const Region from(4 * tile_numel, 1, Registration::none), to(4 * tile_numel, 1, Registration::none);
    for (auto _ : state) {
        std::memcpy(to.data(), from.data(), to.bytes());
        benchmark::ClobberMemory();
    }
    count_bytes(state, 2 * to.bytes());
}
BENCHMARK(copy);

void hash(benchmark::State& state) {
    const Region tile(4 * tile_numel, 1, Registration::none);
    for (auto _ : state) benchmark::DoNotOptimize(hash_tile({tile.data(), tile.bytes()}, {}));
    count_bytes(state, tile.bytes());
}
BENCHMARK(hash);

void norm(benchmark::State& state, PlaneType type) {
    const Region gradient(4 * tile_numel, 1, Registration::none);
    for (auto _ : state) benchmark::DoNotOptimize(sum_of_squares({gradient.data(), type, tile_numel}));
    count_bytes(state, tile_numel * bytes_of(type));
}
BENCHMARK_CAPTURE(norm, bf16, PlaneType::bf16);
BENCHMARK_CAPTURE(norm, fp32, PlaneType::fp32);

// An optimizer that has no kernel for encoded elements, as a user's own.
class Plain final : public Optimizer {
   public:
    std::string name() const override { return inner_->name(); }
    std::uint32_t moments() const noexcept override { return inner_->moments(); }
    MomentKind moment_kind(std::uint32_t moment) const noexcept override { return inner_->moment_kind(moment); }
    void update(const UpdateSpan& span, const StepValues& values) const noexcept override {
        inner_->update(span, values);
    }

   private:
    std::unique_ptr<Optimizer> inner_ = make_adamw({});
};

void steps(benchmark::State& state, std::unique_ptr<MemoryWork> work) {
    Workers workers(static_cast<unsigned>(state.range(0)));
    for (auto _ : state) work->step(workers);
    count_bytes(state, work->bytes_of_step());
}

void triad(benchmark::State& state) {
    steps(state, make_triad(tile_numel));
}

// The optimizer alone on resident fp32, without codec: what the fused update is compared with.
void adamw_alone(benchmark::State& state) {
    steps(state, make_plain_update(make_adamw({}), tile_numel));
}

void adamw(benchmark::State& state, const Codec& codec, PlaneType gradient_type) {
    steps(state, make_tile_update(codec, gradient_type, make_adamw({}), tile_numel));
}

void own_optimizer(benchmark::State& state, const Codec& codec) {
    steps(state, make_tile_update(codec, PlaneType::bf16, std::make_unique<Plain>(), tile_numel));
}

void one_and_all_threads(benchmark::internal::Benchmark* each) {
    each->ArgName("threads")->Arg(1)->UseRealTime();
    const unsigned all = UsableCores::read().count;
    if (all > 1) each->Arg(all);
}

BENCHMARK(triad)->Apply(one_and_all_threads);
BENCHMARK(adamw_alone)->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(adamw, split, split_codec(), PlaneType::bf16)->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(adamw, split_fp32_gradient, split_codec(), PlaneType::fp32)->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(adamw, plain_fp32, plain_fp32_codec(), PlaneType::fp32)->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(adamw, plain_bf16, plain_bf16_codec(), PlaneType::bf16)->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(adamw, compact, compact_codec(), PlaneType::bf16)->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(own_optimizer, split, split_codec())->Apply(one_and_all_threads);
BENCHMARK_CAPTURE(own_optimizer, plain_fp32, plain_fp32_codec())->Apply(one_and_all_threads);

}  // namespace
}  // namespace penstock
