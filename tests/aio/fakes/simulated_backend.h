// Devices that exist in time only: how long each attempt takes is computed, and nobody sleeps. What a loop or a
// scheduler above it does with latency, bandwidth and bounds can be tested exactly, at any speed of the machine.
#pragma once

#include "aio/backend.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace penstock::aio {

// A device serves attempts in the order in which they come, `channels` of them at once. One that has its channel takes
//
//   latency + bytes * channels / bandwidth      (a flush: flush_latency)
//
// so that `channels` long ones together reach the bandwidth and a single one reaches a part of it. One that
// begins beside the other direction takes longer: by `mixed_penalty` times its time, where all other channels serve
// that direction, in proportion where some do. Example: 1 MiB read, 4 channels, 4 GiB/s, 100 us latency: 1.1 ms, alone
// or beside up to three other reads.
struct DeviceModel {
    double read_bytes_per_second = 4e9;
    double write_bytes_per_second = 8e9;
    std::chrono::nanoseconds read_latency = std::chrono::microseconds(80);
    std::chrono::nanoseconds write_latency = std::chrono::microseconds(20);
    std::chrono::nanoseconds flush_latency = std::chrono::microseconds(500);
    std::size_t channels = 4;
    double mixed_penalty = 0.0;
};

// A Backend whose now() is virtual: it begins at one hour and moves within reap() only, to the next completion or by
// the timeout, whichever is first. Every attempt ends in full unless it reads past the end of carried content. Two runs
// with the same calls are the same to the nanosecond.
//
// One thread, but for wake(). Not destroyed with attempts in flight (checked), as any Backend.
//
//   auto owned = std::make_unique<SimulatedBackend>(std::vector{DeviceModel{}}, 64);
//   SimulatedBackend& simulated = *owned;     // lives as long as the Io
//   Io io(std::move(owned), {});
class SimulatedBackend final : public Backend {
   public:
    using Time = std::chrono::steady_clock::time_point;

    // REQUIRES: a device at least; each has channels, and bandwidths above 0.
    SimulatedBackend(std::vector<DeviceModel> devices, std::size_t depth);
    ~SimulatedBackend() override;

    // Which device serves the descriptor; the first one unless said. (Io tells devices apart by File::device().)
    void place(int fd, std::size_t device);
    // Gives the descriptor content: writes change and extend it, reads copy it, both when they end. Without it attempts
    // cost their time and touch no memory. Valid until the backend ends.
    std::vector<std::byte>& carry(int fd);
    // From now on nothing of the device ends; with false, what is in flight goes on where it was.
    void halt(std::size_t device, bool halted = true);

    // What the devices have, in the order of submission.
    const std::vector<Attempt*>& in_flight() const noexcept { return in_flight_; }

    bool submit(Attempt& attempt) override;
    Attempt* reap(std::chrono::nanoseconds timeout) override;
    void wake() noexcept override { woken_.store(true); }
    Attempt* abandon() noexcept override { return nullptr; }  // all of them are with the device
    Time now() const noexcept override { return now_; }
    std::size_t depth() const noexcept override { return depth_; }
    const char* name() const noexcept override { return "simulated"; }

   private:
    struct Service {
        Attempt* attempt = nullptr;
        Time ends;
    };
    struct Device {
        DeviceModel model;
        std::vector<Attempt*> waiting;    // first in, first out
        std::vector<Service> in_service;  // at most model.channels
        std::optional<Time> halted_at;
    };

    Device& device_of(const Attempt& attempt);
    void begin_waiting(Device& device, Time now);
    std::chrono::nanoseconds duration(const Device& device, const Attempt& attempt) const;
    std::optional<Time> next_end() const;
    void end_until(Time now);
    void end(Attempt& attempt);
    std::int32_t move_bytes(Attempt& attempt);

    std::vector<Device> devices_;
    std::size_t depth_;
    std::map<int, std::size_t> places_;
    std::map<int, std::vector<std::byte>> contents_;
    std::vector<Attempt*> in_flight_;
    Attempt* finished_ = nullptr;
    Attempt** finished_end_ = &finished_;
    std::atomic<bool> woken_{false};
    Time now_{std::chrono::hours(1)};
};

}  // namespace penstock::aio
