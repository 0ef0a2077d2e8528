// Memory that a device knows, so that copies from and to it are asynchronous.
#pragma once

#include <cstddef>
#include <string>

namespace penstock::pool {

// Chosen at link time: registration_cuda.cpp or registration_no_cuda.cpp. Returns an empty string, or one line why the
// memory stays ordinary.
std::string register_with_device(void* data, std::size_t bytes);
void unregister_from_device(void* data) noexcept;  // REQUIRES: `data` was registered

inline constexpr std::size_t max_registration_bytes =
    1U << 30;  // 1 ms per GiB with huge pages; larger ones are refused by some

// Move-only. Registers the range in pieces of at most `piece_bytes`, all or none; the destructor unregisters them. A
// device copy should not span two pieces. The memory is the caller's and outlives this.
class DeviceRegistration {
   public:
    DeviceRegistration() noexcept = default;
    DeviceRegistration(std::byte* data, std::size_t bytes, std::size_t piece_bytes = max_registration_bytes);
    ~DeviceRegistration() { release(); }
    DeviceRegistration(DeviceRegistration&& other) noexcept;
    DeviceRegistration& operator=(DeviceRegistration&& other) noexcept;

    bool registered() const noexcept { return bytes_ > 0; }
    const std::string& note() const noexcept { return note_; }  // empty, or one line: why it was refused

   private:
    void release() noexcept;

    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;  // registered so far
    std::size_t piece_bytes_ = 0;
    std::string note_;
};

}  // namespace penstock::pool
