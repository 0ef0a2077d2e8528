// Host memory that is legal for O_DIRECT and for DMA: 2 MiB aligned, in huge pages where the kernel gives them,
// touched.
#pragma once

#include "pinned_pool/huge_pages.h"
#include "pinned_pool/registration.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace penstock::pool {

enum class Registration : std::uint8_t { none, device };

// Direct I/O is 2 to 3 times faster with 2 MiB pages; `avoided` is for measuring that, and for tests.
enum class HugePages : std::uint8_t { wanted, avoided };

// Move-only owner of one anonymous mapping. The constructor maps, advises huge pages, touches every page with
// `touch_threads` threads and registers the memory, in pieces of at most `piece_bytes`, where asked to; throws Error
// (out_of_memory). Contents start as zero. Inaccessible memory on both sides turns an overrun into a fault. A child of
// the process (fork) does not have it.
class Region {
   public:
    Region() noexcept = default;
    Region(std::size_t bytes, unsigned touch_threads, Registration registration,
           HugePages huge_pages = HugePages::wanted, std::size_t piece_bytes = max_registration_bytes);
    ~Region();
    Region(Region&& other) noexcept;
    Region& operator=(Region&& other) noexcept;

    std::byte* data() const noexcept { return data_; }     // aligned to huge_page_bytes
    std::size_t bytes() const noexcept { return bytes_; }  // the request rounded up to the system's page
    bool registered() const noexcept { return registration_.registered(); }
    // Bytes the kernel really gave as huge pages, asked for at construction.
    std::size_t huge_bytes() const noexcept { return huge_bytes_; }
    // Empty, or one line: huge pages not given, or registration refused, and why.
    const std::string& note() const noexcept { return note_; }
    // Empties the region; the memory stays mapped while the process lives, for somebody who is lost may write there at
    // any time. Only memory that no device knows (checked).
    void orphan() noexcept;

   private:
    void map(std::size_t bytes, HugePages huge_pages);
    void release() noexcept;
    std::string huge_page_note() const;

    std::byte* reservation_ = nullptr;  // the whole mapping, with what is inaccessible
    std::size_t reservation_bytes_ = 0;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    std::size_t huge_bytes_ = 0;
    DeviceRegistration registration_;
    std::string note_;
};

}  // namespace penstock::pool
