// Transfers of more bytes than 32 bits count, and places beyond the 2^32nd sector.
#include "tests/aio/backend/every_backend.h"
#include "tests/aio/fakes/aliased_memory.h"
#include "tests/aio/fakes/io_over_manual.h"
#include "tests/seeds.h"

#include <sys/stat.h>

#include <algorithm>
#include <iostream>
#include <map>

namespace penstock::aio {
namespace {

constexpr std::uint64_t gib = 1ULL << 30;
constexpr std::uint64_t sectors_2_to_32 = 512ULL << 32;  // 2 TiB

// Addresses that nobody looks at.
class Addresses {
   public:
    explicit Addresses(std::size_t bytes)
        : bytes_(bytes), data_(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
    ~Addresses() { ::munmap(data_, bytes_); }
    Addresses(const Addresses&) = delete;
    Addresses& operator=(const Addresses&) = delete;
    std::byte* data() const { return static_cast<std::byte*>(data_); }

   private:
    std::size_t bytes_;
    void* data_;
};

using LargeTransfer = IoOverManual;

TEST_F(LargeTransfer, OfMoreThan4GiBMovesEachByteOnceAndToItsPlace) {
    constexpr std::uint64_t bytes = 5 * gib + 12 * kib;
    constexpr std::uint64_t place = 3 * sectors_2_to_32 + 8 * kib;
    const Addresses memory(bytes);
    for (const IoKind kind : {IoKind::read, IoKind::write}) {
        build({});
        Counted transfer;
        TransferRequest request = this->request(kind, bytes, Urgency::demand, place);
        request.data = memory.data();
        io_->start(transfer, request);
        std::map<std::uint64_t, std::uint32_t> moved;  // by offset in the transfer
        while (!transfer.idle()) {
            io_->poll();
            for (const Attempt* attempt : backend_->in_flight) {
                ASSERT_GE(attempt->offset_bytes, place);
                EXPECT_EQ(attempt->data - memory.data(), static_cast<std::ptrdiff_t>(attempt->offset_bytes - place));
                EXPECT_TRUE(moved.emplace(attempt->offset_bytes - place, attempt->bytes).second);
            }
            backend_->complete_all();
        }
        EXPECT_FALSE(transfer.error());
        std::uint64_t end = 0;
        for (const auto& [offset, length] : moved) {
            ASSERT_EQ(offset, end);
            end += length;
        }
        EXPECT_EQ(end, bytes);
    }
}

class LargeFile : public ::testing::TestWithParam<BackendCase> {
   protected:
    void SetUp() override {
        try {
            io_.emplace(make_backend(GetParam(), {}), IoLimits{});
        } catch (const std::exception& error) {
            GTEST_SKIP() << error.what();
        }
        if (::ftruncate(file_.fd(), static_cast<off_t>(3 * sectors_2_to_32)) != 0)
            GTEST_SKIP() << "the file system has no files of 6 TiB";
    }
    void move(IoKind kind, std::byte* data, std::uint64_t offset_bytes, std::uint64_t bytes) {
        Counted transfer;
        io_->start(transfer, {.kind = kind,
                              .file = &file_,
                              .data = data,
                              .offset_bytes = offset_bytes,
                              .bytes = bytes,
                              .urgency = Urgency::demand});
        ASSERT_FALSE(io_->finish(transfer));
        EXPECT_FALSE(transfer.error()) << transfer.error()->message();
    }

    TemporaryDirectory directory_;
    std::string path_ = directory_.file("data");
    File file_{AT_FDCWD, path_, path_, {.mode = FileMode::create}};
    std::optional<Io> io_;
};

TEST_P(LargeFile, PlacesBeyondThe2To32ndSectorAreOnesOfTheirOwn) {
    const ScratchMemory memory(256 * kib), found(256 * kib);
    const std::uint64_t places[] = {0, sectors_2_to_32, 2 * sectors_2_to_32 + 64 * kib, sectors_2_to_32 - 128 * kib};
    for (std::uint64_t i = 0; i < std::size(places); ++i) {
        fill_random(memory.span(), i);
        move(IoKind::write, memory.data(), places[i], 64 * kib);
    }
    for (std::uint64_t i = 0; i < std::size(places); ++i) {
        fill_random(memory.span(), i);
        move(IoKind::read, found.data(), places[i], 64 * kib);
        EXPECT_TRUE(std::equal(found.data(), found.data() + 64 * kib, memory.data())) << places[i];
        ASSERT_EQ(::pread(file_.fd(), found.data(), 64 * kib, static_cast<off_t>(places[i])), 64 * kib);
        EXPECT_TRUE(std::equal(found.data(), found.data() + 64 * kib, memory.data())) << places[i];
    }
    struct stat status {};
    ASSERT_EQ(::fstat(file_.fd(), &status), 0);
    EXPECT_LT(status.st_blocks * 512, 1 << 20) << "something was written elsewhere";
}

// The long form, --runs=80, moves more than 4 GiB at once; a few runs are those of the seeded tests beside it.
TEST_P(LargeFile, BytesOfALongTransferAreTheRightOnes) {
    const std::uint64_t runs = seed_options().runs.value_or(1);
    const std::uint64_t bytes = (runs < 80 ? 1 : runs) * AliasedMemory::piece_bytes + 4 * kib;
    const AliasedMemory memory(bytes), found(bytes);
    fill_random(memory.piece(), 1);
    const std::uint64_t place = sectors_2_to_32 - bytes / 2 / 4096 * 4096;
    move(IoKind::write, memory.data(), place, bytes);
    move(IoKind::read, found.data(), place, bytes);
    EXPECT_TRUE(std::equal(found.piece().begin(), found.piece().end(), memory.piece().begin()));
    for (std::uint64_t at = 0; at < bytes; at += AliasedMemory::piece_bytes / 2) {
        ASSERT_EQ(::pread(file_.fd(), found.data(), 4 * kib, static_cast<off_t>(place + at)), 4 * kib);
        EXPECT_TRUE(std::equal(found.data(), found.data() + 4 * kib, memory.data() + at % AliasedMemory::piece_bytes))
            << at;
    }
    std::cout << "RESULT large transfers: " << bytes << " bytes written and read at once by "
              << word_of(GetParam().kind) << std::endl;
}

INSTANTIATE_TEST_SUITE_P(All, LargeFile, every_backend(), name_of_backend);

}  // namespace
}  // namespace penstock::aio
