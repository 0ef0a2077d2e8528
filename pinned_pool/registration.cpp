#include "pinned_pool/registration.h"

#include "aio/words/check.h"

#include <algorithm>
#include <utility>

namespace penstock::pool {

DeviceRegistration::DeviceRegistration(std::byte* data, std::size_t bytes, std::size_t piece_bytes)
    : data_(data), piece_bytes_(piece_bytes) {
    PENSTOCK_CHECK(bytes > 0 && piece_bytes > 0, "{} bytes to register in pieces of {}", bytes, piece_bytes);
    while (bytes_ < bytes) {
        const std::size_t piece = std::min(piece_bytes, bytes - bytes_);
        note_ = register_with_device(data_ + bytes_, piece);
        if (!note_.empty()) break;
        bytes_ += piece;
    }
    if (!note_.empty()) release();
}

DeviceRegistration::DeviceRegistration(DeviceRegistration&& other) noexcept {
    *this = std::move(other);
}

DeviceRegistration& DeviceRegistration::operator=(DeviceRegistration&& other) noexcept {
    if (this == &other) return *this;
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    piece_bytes_ = other.piece_bytes_;
    note_ = std::move(other.note_);
    return *this;
}

void DeviceRegistration::release() noexcept {
    for (std::size_t begin = 0; begin < bytes_; begin += piece_bytes_) unregister_from_device(data_ + begin);
    bytes_ = 0;
}

}  // namespace penstock::pool
