#include "pinned_pool/region.h"

#include "aio/words/byte_count.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace penstock::pool {

namespace {

constexpr unsigned max_touch_threads = 64;

std::size_t page_bytes() {
    return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

[[noreturn]] void refuse(std::size_t bytes, int errno_value) {
    throw Error(ExitCode::out_of_memory,
                fmt::format("cannot map {} bytes of host memory: {}; lower the memory budget or "
                            "raise the limit on address space (ulimit -v) or on data segments (ulimit -d).",
                            bytes, aio::errno_text(errno_value)));
}

// One huge page at a time, so that no two threads fault the same one.
void touch_pages(std::byte* data, std::size_t bytes, std::atomic<std::size_t>& next) {
    const std::size_t step = page_bytes();
    for (;;) {
        const std::size_t begin = next.fetch_add(huge_page_bytes, std::memory_order_relaxed);
        if (begin >= bytes) return;
        const std::size_t end = std::min(bytes, begin + huge_page_bytes);
        for (std::size_t at = begin; at < end; at += step) *const_cast<volatile std::byte*>(data + at) = std::byte{0};
    }
}

void touch(std::byte* data, std::size_t bytes, unsigned thread_count) {
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> helpers;
    const std::size_t useful =
        std::min<std::size_t>(bytes / huge_page_bytes, std::min(thread_count, max_touch_threads));
    helpers.reserve(useful);
    try {
        for (std::size_t i = 1; i < useful; ++i) helpers.emplace_back([&] { touch_pages(data, bytes, next); });
    } catch (const std::exception&) {  // no more threads, or no memory for one
        // Fewer threads only take longer: this one does what is left.
    }
    touch_pages(data, bytes, next);
    for (std::thread& helper : helpers) helper.join();
}

}  // namespace

Region::Region(std::size_t bytes, unsigned touch_threads, Registration registration, HugePages huge_pages,
               std::size_t piece_bytes) {
    PENSTOCK_CHECK(bytes > 0 && touch_threads > 0, "a region of {} bytes touched by {} threads", bytes, touch_threads);
    Region whole;  // a half-built object has no destructor
    whole.map(round_up(bytes, page_bytes()), huge_pages);
    touch(whole.data_, whole.bytes_, touch_threads);
    whole.huge_bytes_ = huge_bytes_in(whole.data_, whole.bytes_);
    if (huge_pages == HugePages::wanted) whole.note_ = whole.huge_page_note();
    if (registration == Registration::device) {
        whole.registration_ = DeviceRegistration(whole.data_, whole.bytes_, piece_bytes);
        const std::string& refusal = whole.registration_.note();
        whole.note_ += (whole.note_.empty() || refusal.empty() ? "" : "; ") + refusal;
    }
    *this = std::move(whole);
}

Region::~Region() {
    release();
}

Region::Region(Region&& other) noexcept {
    *this = std::move(other);
}

Region& Region::operator=(Region&& other) noexcept {
    if (this == &other) return *this;
    release();
    reservation_ = std::exchange(other.reservation_, nullptr);
    reservation_bytes_ = std::exchange(other.reservation_bytes_, 0);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    huge_bytes_ = std::exchange(other.huge_bytes_, 0);
    registration_ = std::move(other.registration_);
    note_ = std::move(other.note_);
    return *this;
}

// Reserves inaccessible address space with a huge page to spare on both sides, and opens the aligned middle.
void Region::map(std::size_t bytes, HugePages huge_pages) {
    const std::size_t reservation_bytes = round_up(bytes, huge_page_bytes) + 3 * huge_page_bytes;
    void* reservation =
        ::mmap(nullptr, reservation_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reservation == MAP_FAILED) refuse(bytes, errno);
    reservation_ = static_cast<std::byte*>(reservation);
    reservation_bytes_ = reservation_bytes;
    const std::size_t misfit = reinterpret_cast<std::uintptr_t>(reservation) % huge_page_bytes;
    data_ = reservation_ + 2 * huge_page_bytes - misfit;
    bytes_ = bytes;
    if (::mprotect(data_, bytes_, PROT_READ | PROT_WRITE) != 0) refuse(bytes, errno);
    // A child would get copies at once of the pages that the kernel or a device has pinned: a second pool.
    ::madvise(data_, bytes_, MADV_DONTFORK);
    // A wish: huge_bytes_in() says what came of it.
    ::madvise(data_, bytes_, huge_pages == HugePages::wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

void Region::orphan() noexcept {
    PENSTOCK_CHECK(!registered(), "a region of {} bytes that a device knows is orphaned", bytes_);
    reservation_ = nullptr;  // nothing else unmaps it
    *this = Region();
}

void Region::release() noexcept {
    registration_ = DeviceRegistration();
    if (reservation_ != nullptr) ::munmap(reservation_, reservation_bytes_);
    reservation_ = nullptr;
}

std::string Region::huge_page_note() const {
    const std::size_t possible = bytes_ / huge_page_bytes * huge_page_bytes;
    if (huge_bytes_ >= possible) return {};
    return fmt::format(
        "only {} of {} bytes of host memory are in 2 MiB pages, which makes direct I/O slower; see "
        "/sys/kernel/mm/transparent_hugepage/enabled (madvise or always) and free some memory",
        huge_bytes_, possible);
}

}  // namespace penstock::pool
