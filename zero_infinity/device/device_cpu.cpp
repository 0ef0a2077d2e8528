// Compute reads host memory where it lies: there is nothing to allocate, copy or wait for.

#include "aio/words/check.h"
#include "zero_infinity/device/device.h"

namespace penstock::zero {
namespace {

class CpuDevice final : public Device {
   public:
    DeviceKind kind() const noexcept override { return DeviceKind::cpu; }

    std::byte* allocate(std::uint64_t bytes, const std::string& use) override {
        PENSTOCK_CHECK(false, "'{}' ({} bytes): the cpu device has no memory of its own", use, bytes);
    }
    std::uint64_t used_bytes() const noexcept override { return 0; }

    Ticket copy_in(std::byte* /*device*/, const std::byte* /*host*/, std::uint64_t bytes, Ticket /*after*/) override {
        PENSTOCK_CHECK(false, "{} bytes in: the cpu device reads host memory where it lies", bytes);
    }
    Ticket copy_out(std::byte* /*host*/, const std::byte* /*device*/, std::uint64_t bytes) override {
        PENSTOCK_CHECK(false, "{} bytes out: the cpu device writes host memory where it lies", bytes);
    }

    bool reached(Ticket ticket) override {
        PENSTOCK_CHECK(ticket.number == 0, "ticket {} of a device that makes no copies", ticket.number);
        return true;
    }
    bool wait(Ticket ticket, std::chrono::nanoseconds /*timeout*/) override { return reached(ticket); }
    void compute_after(Ticket ticket) override { reached(ticket); }
    Ticket compute_mark() override { return {}; }  // compute is the calling thread: what it has issued has ended
    void released(std::byte* /*device*/, std::uint64_t /*bytes*/) noexcept override {}
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
    return std::make_unique<CpuDevice>();
}

}  // namespace penstock::zero
