// A store with tiles of more than 4 GiB and places beyond the 2^32nd sector. Its large tiles are only pretended to be
// moved, and the room for them to be reserved: this program's fallocate() is found before the library's.
#include "swap/store/blocking.h"
#include "swap/store/tensor_store.h"
#include "tests/aio/fakes/aliased_memory.h"
#include "tests/aio/fakes/forwarding_backend.h"
#include "tests/swap/store/exercise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

// NOLINTBEGIN: the names are the system's
extern "C" int sparse_fallocate(int fd, int mode, off_t offset, off_t bytes) __asm__("fallocate");
extern "C" int sparse_fallocate(int fd, int /*mode*/, off_t offset, off_t bytes) {
    return ::ftruncate(fd, offset + bytes);
}
extern "C" int roomy_fstatvfs(int fd, struct statvfs* space) __asm__("fstatvfs");
extern "C" int roomy_fstatvfs(int /*fd*/, struct statvfs* space) {
    *space = {};
    space->f_frsize = 4096;
    space->f_bavail = 1ULL << 40;
    return 0;
}
// NOLINTEND

namespace penstock::testing {
namespace {

constexpr std::uint64_t tile_bytes = (5ULL << 30) + 12'288;
constexpr std::uint64_t far_bytes = 420 * tile_bytes - 4096;
constexpr std::uint64_t near_bytes = 64 << 10;

// Of the object 'far' nothing is moved, but written down; all else is done.
class Pretending final : public ForwardingBackend {
   public:
    using Moved = std::map<std::pair<aio::IoKind, std::uint64_t>, const std::byte*>;  // by kind and place
    Pretending(std::unique_ptr<aio::Backend> inner, Moved& moved)
        : ForwardingBackend(std::move(inner)), moved_(moved) {}

    bool submit(aio::Attempt& attempt) override {
        struct stat status {};
        if (attempt.kind == aio::IoKind::flush || ::fstat(attempt.fd, &status) != 0 ||
            static_cast<std::uint64_t>(status.st_size) < far_bytes || attempt.offset_bytes >= far_bytes)
            return ForwardingBackend::submit(attempt);
        if (pretended_ == depth()) return false;
        ++pretended_;
        moved_[{attempt.kind, attempt.offset_bytes}] = attempt.data;
        attempt.result = static_cast<std::int32_t>(attempt.bytes);
        attempt.next = std::exchange(finished_, &attempt);
        return true;
    }
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        if (finished_ == nullptr) return ForwardingBackend::reap(timeout);
        pretended_ = 0;
        return std::exchange(finished_, nullptr);
    }
    const char* name() const noexcept override { return "pretending"; }

   private:
    Moved& moved_;
    std::size_t pretended_ = 0;
    aio::Attempt* finished_ = nullptr;
};

class LargeStore : public ::testing::Test {
   protected:
    // Each byte of the tile of `far`, of which there is one slot, went to its own place, or came from it.
    void expect_moved(aio::IoKind kind, std::uint32_t tile, std::uint64_t bytes) {
        ASSERT_FALSE(moved.empty());
        const std::uint64_t place = tile * tile_bytes;
        std::uint64_t expected = place;
        for (const auto& [where, data] : moved) {
            EXPECT_EQ(where.first, kind);
            ASSERT_EQ(where.second, expected);
            EXPECT_EQ(static_cast<std::uint64_t>(data - memory.data()), expected - place);
            expected += aio::IoLimits{}.chunk_bytes;
        }
        EXPECT_GE(expected, place + bytes);
        moved.clear();
    }
    std::span<std::byte> of(const store::TensorStore& store, store::TileId tile) const {
        return {memory.data(), store.extent_bytes(tile)};
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch.file("store"), "test"};
    Pretending::Moved moved;
    aio::Io io{std::make_unique<Pretending>(aio::make_thread_backend({}), moved), {}};
    const aio::AliasedMemory memory{tile_bytes + 4096};
};

// As a snapshot it is not filled with zeros first.
TEST_F(LargeStore, TilesOfMoreThan4GiBAndPlacesBeyondThe2To32ndSectorAreHashedMovedAndFoundAgain) {
    if (::ftruncate(store::Descriptor(::open(scratch.file("probe").c_str(), O_RDWR | O_CREAT, 0600)).get(),
                    static_cast<off_t>(far_bytes + near_bytes)) != 0)
        GTEST_SKIP() << "the file system has no files of 3 TiB";
    auto store = store::TensorStore::create(io, {&directory},
                                            {.objects = {{"far", far_bytes, tile_bytes}, {"near", near_bytes, 8192}},
                                             .kind = store::StoreKind::snapshot,
                                             .origin = store::Origin{.store = {std::byte{3}}, .generation = 12}});
    moved.clear();
    const store::TileId first{0, 0}, last{0, 419}, real{1, 7};
    aio::fill_random(memory.piece(), 1);
    ASSERT_EQ(store->layout().extent(real, 0).offset_bytes, far_bytes + 7 * 8192);
    for (const store::TileId tile : {first, last}) {
        write_blocking(io, *store, tile, of(*store, tile));
        expect_moved(aio::IoKind::write, tile.tile, store->extent_bytes(tile));
    }
    aio::ScratchMemory bytes(8192);
    aio::fill_random(bytes.span(), 2);
    write_blocking(io, *store, real, bytes.span());
    commit_blocking(io, *store, {{"step", "1"}});
    store = nullptr;

    store = store::TensorStore::open(io, {&directory});
    ASSERT_EQ(store->layout().tile_count(0), 420U);
    for (const store::TileId tile : {first, last}) {
        moved.clear();
        read_blocking(io, *store, tile, of(*store, tile));
        expect_moved(aio::IoKind::read, tile.tile, store->extent_bytes(tile));
    }
    aio::ScratchMemory found(8192);
    read_blocking(io, *store, real, found.span());
    EXPECT_TRUE(std::equal(found.span().begin(), found.span().end(), bytes.span().begin()));

    // The last byte counts, which no 32 bits reach.
    memory.data()[tile_bytes - 1] ^= std::byte{1};
    TestTile read;
    store->read(read, first, of(*store, first), aio::Urgency::demand);
    while (!read.idle()) io.wait(std::chrono::seconds(1));
    ASSERT_TRUE(read.error());
    EXPECT_EQ(read.error()->kind, store::StoreError::Kind::damaged) << read.error()->message;
}

}  // namespace
}  // namespace penstock::testing
