// The arithmetic that a step does on host memory, on tiles larger than the caches: on one thread, and where a second
// argument says so on as many as the machine has.
//   penstock bench pieces --filter 'copy|triad|hash|norm|adamw'
// "bytes_per_second" counts what each piece reads and writes of memory, once; so does STREAM's triad (McCalpin 1995),
// the yardstick: 12 bytes per element, although the store reads its line as well, which an update in place does not.
#include "pinned_pool/region.h"
#include "swap/hash.h"
#include "zero_infinity/gradient.h"
#include "zero_infinity/optimizers.h"
#include "zero_infinity/update.h"

#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>

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

constexpr std::uint64_t chunk_numel = 65536;

std::uint64_t chunk_end(std::size_t chunk) {
    return (chunk + 1) * chunk_numel;
}

// Sets what memory must not be read for the first time, subnormal or equal everywhere.
void fill(const Region& region, std::uint16_t bits) {
    auto* values = reinterpret_cast<std::uint16_t*>(region.data());
    for (std::uint64_t i = 0; i < region.bytes() / 2; ++i) values[i] = static_cast<std::uint16_t>(bits + i % 61);
}
constexpr std::uint16_t about_a_hundredth = 0x3c23;  // as bf16 and, with any lower half, as fp32

void triad(benchmark::State& state) {
    const Region a(4 * tile_numel, 1, Registration::none), b(4 * tile_numel, 1, Registration::none),
        c(4 * tile_numel, 1, Registration::none);
    for (const Region* region : {&a, &b, &c}) fill(*region, about_a_hundredth);
    auto* to = reinterpret_cast<float*>(a.data());
    const auto* first = reinterpret_cast<const float*>(b.data());
    const auto* second = reinterpret_cast<const float*>(c.data());
    Workers workers(static_cast<unsigned>(state.range(0)));
    float scalar = 3;
    benchmark::DoNotOptimize(scalar);
    for (auto _ : state) {
        workers.run(tile_numel / chunk_numel, [&](std::size_t chunk) {
            for (std::uint64_t i = chunk * chunk_numel; i < chunk_end(chunk); ++i)
                to[i] = first[i] + scalar * second[i];
        });
        benchmark::ClobberMemory();
    }
    count_bytes(state, 12 * tile_numel);
}

// The optimizer alone on resident fp32, without codec: what the fused update is compared with.
void adamw_alone(benchmark::State& state) {
    const Region p(4 * tile_numel, 1, Registration::none), m(4 * tile_numel, 1, Registration::none),
        v(4 * tile_numel, 1, Registration::none), g(4 * tile_numel, 1, Registration::none);
    for (const Region* region : {&p, &m, &v, &g}) fill(*region, about_a_hundredth);
    const auto optimizer = make_adamw({});
    const auto at = [](const Region& region, std::uint64_t first) {
        return reinterpret_cast<float*>(region.data()) + first;
    };
    Workers workers(static_cast<unsigned>(state.range(0)));
    std::uint64_t step = 0;
    for (auto _ : state) {
        const StepValues values{.step = ++step, .learning_rate = 1e-3};
        workers.run(tile_numel / chunk_numel, [&](std::size_t chunk) {
            const std::uint64_t first = chunk * chunk_numel;
            optimizer->update({at(p, first), {at(m, first), at(v, first)}, at(g, first), chunk_numel}, values);
        });
    }
    count_bytes(state, 28 * tile_numel);
}

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

void update(benchmark::State& state, const Codec& codec, PlaneType gradient_type, const Optimizer& optimizer) {
    const StateFormat format = state_format(codec, optimizer);
    const Region weights(4 * tile_numel, 1, Registration::none), states(12 * tile_numel, 1, Registration::none);
    const Region gradient(4 * tile_numel, 1, Registration::none);
    fill(gradient, about_a_hundredth);
    const TileView tile{weights.data(), states.data(), tile_numel};
    encode_initial(format, reinterpret_cast<const float*>(gradient.data()), tile);
    Workers workers(static_cast<unsigned>(state.range(0)));
    std::uint64_t step = 0;
    for (auto _ : state)
        if (update_tile({.format = &format, .optimizer = &optimizer, .values = {.step = ++step, .learning_rate = 1e-6}},
                        tile, {gradient.data(), gradient_type, tile_numel}, workers))
            state.SkipWithError("a value is not finite");
    count_bytes(state, 2 * (tile_numel * format.weights_bytes() + format.states_bytes(tile_numel)) +
                           bytes_of(gradient_type) * tile_numel);
}

void adamw(benchmark::State& state, const Codec& codec, PlaneType gradient_type) {
    update(state, codec, gradient_type, *make_adamw({}));
}

void own_optimizer(benchmark::State& state, const Codec& codec) {
    update(state, codec, PlaneType::bf16, Plain());
}

void one_and_all_threads(benchmark::internal::Benchmark* each) {
    each->ArgName("threads")->Arg(1)->UseRealTime();
    const unsigned all = std::thread::hardware_concurrency();
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
