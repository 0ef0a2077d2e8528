// An NVMe device in virtual time: bytes wait in two queues, and what is at their heads shares the bandwidth. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace penstock::zero {

// What a device gives, in bytes per second: to reads alone, to writes alone, to both together where each is half.
struct DeviceRates {
    double read = 0;
    double write = 0;
    double both = 0;
};

// What compute and the device each keep of their speed while both are at it: 1, unless they share something, as where a
// virtual machine's disk is served by the cores that it computes on.
struct Contention {
    double compute = 1;
    double device = 1;
};

// What these bytes take at least. REQUIRES: all rates are positive.
double transfer_seconds(const DeviceRates& rates, double read_bytes, double write_bytes);

enum class Direction : std::uint8_t { read, write };

// A transfer of a kind that the owner tells by its number.
struct VirtualTransfer {
    Direction direction = Direction::read;
    std::uint64_t number = 0;
    double bytes = 0;
};

// Reads are served in their order, but those that compute waits for first; writes in theirs. Latency is not modelled:
// what is deep enough in flight hides it. A flush holds all else up: where that lasts, the host of a virtual machine
// was seen to serve next to nothing meanwhile; an NVMe drive, which would, is done at once. Not thread-safe; one owner.
class VirtualDevice {
   public:
    explicit VirtualDevice(DeviceRates rates);  // REQUIRES: all are positive

    void begin(const VirtualTransfer& transfer);
    void raise(std::uint64_t number);  // of a read, which now goes before those that nobody waits for
    void slow_to(double share) noexcept { share_ = share; }  // of its rates, from now on
    void hold(double seconds) noexcept { held_ = seconds; }  // nothing moves until then
    bool idle() const noexcept { return queues_[0].empty() && queues_[1].empty(); }
    bool busy(Direction direction) const noexcept { return !queue(direction).empty(); }
    // Bytes per second that move now.
    double rate(Direction direction) const noexcept;
    // Until the next transfer, or what holds it up, ends, as long as nothing is begun. REQUIRES: not idle.
    double seconds_to_next() const noexcept;
    // Time goes on. REQUIRES: not beyond seconds_to_next().
    void advance(double seconds) noexcept;
    std::optional<VirtualTransfer> take_ended();  // one that has ended by now

    // Since construction.
    double moved(Direction direction) const noexcept { return moved_[index(direction)]; }
    double busy_seconds(Direction direction) const noexcept { return busy_[index(direction)]; }

   private:
    struct Waiting {
        VirtualTransfer transfer;
        double left = 0;  // bytes
        bool raised = false;
    };
    static std::size_t index(Direction direction) noexcept { return direction == Direction::read ? 0 : 1; }
    const std::deque<Waiting>& queue(Direction direction) const noexcept { return queues_[index(direction)]; }

    // How fast it is now.
    DeviceRates rates_;
    double share_ = 1;
    double held_ = 0;  // seconds

    // By direction: what moves, and what was counted since construction.
    std::array<std::deque<Waiting>, 2> queues_;
    std::array<double, 2> moved_{};
    std::array<double, 2> busy_{};
};

}  // namespace penstock::zero
