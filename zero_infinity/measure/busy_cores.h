// Threads that do nothing but compute, in the place of a step's, and how much they get done.
#pragma once

#include "zero_infinity/forecast/virtual_device.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace penstock::zero {

class BusyCores {
   public:
    explicit BusyCores(unsigned threads);  // at work from now on
    ~BusyCores();
    BusyCores(const BusyCores&) = delete;
    BusyCores& operator=(const BusyCores&) = delete;

    double done() const noexcept;  // by all of them, since the beginning; any unit

   private:
    struct alignas(64) Worker {
        std::atomic<std::uint64_t> rounds{0};
        std::thread thread;
    };
    void work(Worker& worker) const noexcept;

    std::atomic<bool> stopping_{false};
    std::vector<Worker> workers_;
};

// What so many threads that compute keep of their speed beside transfers, and transfers beside them, which give `alone`
// bytes per second. `transfers`: of so many seconds, returns their bytes per second. Takes `seconds` in all.
Contention measure_contention(unsigned threads, double seconds, double alone,
                              const std::function<double(double seconds)>& transfers);

}  // namespace penstock::zero
