// The arithmetic that a step does on host memory, one thread, on tiles larger than the caches.
//   build/release/penstock-bench
// "bytes_per_second" counts what each piece reads and writes of memory, once.
#include "pinned_pool/region.h"
#include "swap/hash.h"
#include "zero_infinity/gradient.h"
#include "zero_infinity/optimizers.h"
#include "zero_infinity/update.h"

#include <benchmark/benchmark.h>

#include <cstring>

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

void adamw(benchmark::State& state, const Codec& codec) {
    const StateFormat format{&codec, 2};
    const Region weights(4 * tile_numel, 1, Registration::none), states(12 * tile_numel, 1, Registration::none);
    const Region gradient(2 * tile_numel, 1, Registration::none);
    const auto optimizer = make_adamw({});
    Workers workers(1);
    std::uint64_t step = 0;
    for (auto _ : state)
        update_tile(
            {.format = &format, .optimizer = optimizer.get(), .values = {.step = ++step, .learning_rate = 1e-3}},
            {weights.data(), states.data(), tile_numel}, {gradient.data(), PlaneType::bf16, tile_numel}, workers);
    count_bytes(state, tile_numel * (2 * (format.weights_bytes() + format.states_bytes()) + 2));
}
BENCHMARK_CAPTURE(adamw, split, split_codec());
BENCHMARK_CAPTURE(adamw, plain_fp32, plain_fp32_codec());
BENCHMARK_CAPTURE(adamw, plain_bf16, plain_bf16_codec());

}  // namespace
}  // namespace penstock
