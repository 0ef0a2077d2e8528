// After construction the loop allocates nothing. An executable of its own, because it replaces operator new.
#include "aio/file.h"
#include "aio/io.h"
#include "tests/aio/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> allocations{0};

}  // namespace

// Not inlined: the compiler would see through one half and warn that it does not match the other.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    allocations.fetch_add(1);
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
    std::free(memory);
}

namespace penstock {
namespace {

struct Repeated : Transfer {
    int dones = 0;
    void done() noexcept override { ++dones; }
};

TEST(Io, AllocatesNothingWhileItRuns) {
    const ScratchDirectory directory;
    const std::string path = directory.file("data");
    File file(AT_FDCWD, path, path, {.mode = FileMode::create});
    constexpr std::uint64_t part = std::uint64_t{1} << 19;
    file.reserve(6 * part);
    const ScratchMemory memory(6 * part);
    fill_random(memory.span(), 1);
    for (const BackendKind kind : {BackendKind::io_uring, BackendKind::threads}) {
        std::unique_ptr<Backend> backend;
        try {
            backend = open_backend(file.fd(), {.depth = 8}, kind).backend;
        } catch (const Error& error) {
            continue;  // io_uring may be denied here; the threads never are
        }
        Io io(std::move(backend), {.chunk_bytes = 64 << 10});
        std::array<Repeated, 6> transfers;
        const std::uint64_t before = allocations.load();
        for (int round = 0; round < 20; ++round) {
            for (std::size_t i = 0; i < transfers.size(); ++i) {
                const IoKind what = i == 5 ? IoKind::flush : i % 2 == 0 ? IoKind::write : IoKind::read;
                const bool range = what != IoKind::flush;
                io.start(transfers[i], {.kind = what,
                                        .file = &file,
                                        .data = range ? memory.data() + i * part : nullptr,
                                        .offset_bytes = range ? i * part : 0,
                                        .bytes = range ? part : 0,
                                        .urgency = static_cast<Urgency>(i % 4)});
            }
            while (!io.idle()) io.wait(std::chrono::seconds(1));
            for (const Repeated& transfer : transfers) ASSERT_FALSE(transfer.error().has_value());
        }
        EXPECT_EQ(allocations.load() - before, 0U) << io.backend_name();
        EXPECT_EQ(transfers[5].dones, 20);
    }
}

TEST(Io, CountingAllocationsWorks) {
    const std::uint64_t before = allocations.load();
    delete new int(1);
    void* volatile kept = ::operator new(8);
    ::operator delete(kept);
    EXPECT_GT(allocations.load(), before);
}

}  // namespace
}  // namespace penstock
