#include "zero_infinity/measure/busy_cores.h"

#include <algorithm>
#include <array>
#include <chrono>

namespace penstock::zero {
namespace {

constexpr int slices = 6;
constexpr double least_kept = 0.05;  // of a speed: nothing stands still

}  // namespace

BusyCores::BusyCores(unsigned threads) : workers_(threads) {
    for (Worker& worker : workers_) worker.thread = std::thread([this, &worker] { work(worker); });
}

BusyCores::~BusyCores() {
    stopping_ = true;
    for (Worker& worker : workers_) worker.thread.join();
}

double BusyCores::done() const noexcept {
    double rounds = 0;
    for (const Worker& worker : workers_) rounds += static_cast<double>(worker.rounds.load(std::memory_order_relaxed));
    return rounds;
}

// In no need of memory: so it is their time that something else takes.
void BusyCores::work(Worker& worker) const noexcept {
    std::array<float, 256> values{};
    while (!stopping_.load(std::memory_order_relaxed)) {
        for (int repeat = 0; repeat < 64; ++repeat)
            for (float& each : values) each = each * 0.999F + 0.5F;
        asm volatile("" : : "m"(values));  // they are wanted
        worker.rounds.fetch_add(1, std::memory_order_relaxed);
    }
}

// By turns, and for long: a host that bounds the time of a machine's cores and of its disk together lends some for a
// second or two, and a step lasts longer.
Contention measure_contention(unsigned threads, double seconds, double alone,
                              const std::function<double(double seconds)>& transfers) {
    const BusyCores compute(threads);
    const auto speed_while = [&](auto work) {
        const double before = compute.done();
        const auto start = std::chrono::steady_clock::now();
        work();
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
        return (compute.done() - before) / elapsed.count();
    };
    const double slice = seconds / slices;
    double undisturbed = 0, beside = 0, rate = 0;
    for (int i = 0; i < slices; ++i) {
        undisturbed += speed_while([&] { std::this_thread::sleep_for(std::chrono::duration<double>(slice / 4)); });
        beside += speed_while([&] { rate += transfers(0.75 * slice) / slices; });
    }
    return {.compute = std::clamp(beside / undisturbed, least_kept, 1.0),
            .device = std::clamp(rate / alone, least_kept, 1.0)};
}

}  // namespace penstock::zero
