// What aio itself costs: a transfer from start() to done() without a device, and with the cheapest one; a decision; a
// count.
#include "aio/admission.h"
#include "aio/file.h"
#include "aio/io.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "bench/io/null_backend.h"
#include "pinned_pool/region.h"

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace penstock::bench {
namespace {

constexpr std::size_t batch = 16;  // transfers that are started before the next poll
constexpr std::uint64_t block_bytes = 4096;

struct Load final : aio::Transfer {
    void done() noexcept override { benchmark::DoNotOptimize(this); }
};

// A file without a name, as long as the batch's blocks, in the page cache.
aio::File cached_file(std::uint64_t bytes) {
    std::string path = (std::filesystem::temp_directory_path() / "penstock_pieces_XXXXXX").string();
    const int made = ::mkstemp(path.data());
    if (made < 0 || ::ftruncate(made, static_cast<off_t>(bytes)) != 0)
        throw Error(ExitCode::storage, "cannot make the file " + path);
    ::close(made);
    const struct Name {
        const std::string& path;
        ~Name() { ::unlink(path.c_str()); }
    } name{path};  // gone with this function, whether the file could be opened or not
    return {AT_FDCWD, path, path, {.mode = aio::FileMode::read_write, .caching = aio::Caching::buffered}};
}

// One operation is one transfer; `bytes` of each decides into how many chunks it falls.
void submit(benchmark::State& state, aio::Io& io, std::uint64_t bytes) {
    const aio::File file = cached_file(batch * bytes);
    const pool::Region memory(batch * bytes, 1, pool::Registration::none);
    std::array<Load, batch> loads;
    while (state.KeepRunningBatch(batch)) {
        for (std::size_t i = 0; i < batch; ++i) {
            io.start(loads[i],
                     {.file = &file, .data = memory.data() + i * bytes, .offset_bytes = i * bytes, .bytes = bytes});
        }
        while (!io.idle()) io.wait(std::chrono::seconds(1));
    }
    for (const Load& load : loads) {
        if (load.error()) state.SkipWithError(load.error()->message().c_str());
    }
}

void submit_null(benchmark::State& state) {
    aio::Io io(std::make_unique<NullBackend>(), {});
    submit(state, io, block_bytes);
}
BENCHMARK(submit_null);

void submit_null_4_chunks(benchmark::State& state) {
    aio::Io io(std::make_unique<NullBackend>(), {.chunk_bytes = 4096});
    submit(state, io, 4 * block_bytes);
}
BENCHMARK(submit_null_4_chunks);

using MakeBackend = std::unique_ptr<aio::Backend> (*)(const aio::BackendOptions&);

// With the copy out of the page cache, which is part of it.
void submit_cached(benchmark::State& state, MakeBackend make) {
    std::unique_ptr<aio::Backend> backend;
    try {
        backend = make({});
    } catch (const Error& error) {
        state.SkipWithError(error.what());
        return;
    }
    aio::Io io(std::move(backend), {});
    submit(state, io, block_bytes);
}
void submit_cached_io_uring(benchmark::State& state) {
    submit_cached(state, aio::make_uring_backend);
}
BENCHMARK(submit_cached_io_uring);
void submit_cached_threads(benchmark::State& state) {
    submit_cached(state, aio::make_thread_backend);
}
BENCHMARK(submit_cached_threads);

// What the two above would cost without aio.
void pread_cached(benchmark::State& state) {
    const aio::File file = cached_file(batch * block_bytes);
    const pool::Region memory(block_bytes, 1, pool::Registration::none);
    std::uint64_t place = 0;
    for (auto _ : state) {
        const auto offset = static_cast<off_t>(place++ % batch * block_bytes);
        if (::pread(file.fd(), memory.data(), block_bytes, offset) != static_cast<ssize_t>(block_bytes)) {
            state.SkipWithError("pread failed");
            break;
        }
    }
}
BENCHMARK(pread_cached);

void admission_decision(benchmark::State& state) {
    const aio::InFlightLimits limits;
    aio::DeviceLoad load;
    load.read_bytes[1] = 1U << 20;
    load.demand_recent = true;
    load.free_places = 32;
    for (auto _ : state) {
        benchmark::DoNotOptimize(load);
        benchmark::DoNotOptimize(admit(limits, load, aio::IoKind::write, aio::Urgency::write_back, 1U << 20));
    }
}
BENCHMARK(admission_decision);

void histogram_add(benchmark::State& state) {
    aio::LatencyHistogram histogram;
    std::uint64_t ns = 1;
    for (auto _ : state) {
        ns = ns * 6364136223846793005ULL + 1442695040888963407ULL;
        histogram.add(std::chrono::nanoseconds(ns >> 40));  // up to 17 ms
    }
}
BENCHMARK(histogram_add);

void histogram_snapshot_p99(benchmark::State& state) {
    aio::LatencyHistogram histogram;
    for (int i = 0; i < 1000; ++i) histogram.add(std::chrono::microseconds(i));
    for (auto _ : state) benchmark::DoNotOptimize(histogram.snapshot().quantile(0.99));
}
BENCHMARK(histogram_snapshot_p99);

}  // namespace
}  // namespace penstock::bench
