#include "zero_infinity/measure/busy_cores.h"

#include <array>

namespace penstock::zero {

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

}  // namespace penstock::zero
