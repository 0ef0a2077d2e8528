// Snapshots that share the blocks of their origin, on a real XFS. Needs root and loop devices; says so where it cannot
// run.
#include "aio/words/error.h"
#include "swap/blocks/block_clone.h"
#include "swap/blocks/shared_slots.h"
#include "swap/directory/snapshot_list.h"
#include "swap/directory/store_files.h"
#include "swap/snapshot/repair.h"
#include "tests/swap/block_device/sharing_store.h"
#include "tests/swap/directory/mounts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t slots = 2;

class SharedBlocks : public OnXfs {};

TEST_F(SharedBlocks, AreThoseOfTheGenerationWhileTheOriginOverwritesBothSlots) {
    on_xfs([](const std::string& root) {
        SharingStore origin(root);
        struct Kept {
            TileSeeds seeds;
            store::ClientState client;
        };
        std::vector<Kept> all;
        for (int i = 0; i < 4; ++i) {
            if (const std::string wrong = origin.go_on(i == 0 ? 3 : 1); !wrong.empty()) return wrong;
            all.push_back({origin.moving().committed(), origin.moving().client()});
            if (const std::string wrong = origin.keep(std::to_string(i)); !wrong.empty()) return wrong;
        }
        if (const std::string wrong = origin.keep("copy", store::Blocks::own); !wrong.empty()) return wrong;
        all.push_back(all.back());
        if (const std::string wrong = origin.go_on(4); !wrong.empty()) return wrong;
        for (std::size_t i = 0; i < all.size(); ++i) {
            const std::string name = i == 4 ? "copy" : std::to_string(i);
            const std::string wrong = origin.snapshot_difference(name, all[i].seeds, all[i].client);
            if (!wrong.empty()) return wrong;
        }
        if (std::string wrong = difference(origin.io(), origin.store(), origin.moving().newest()); !wrong.empty())
            return wrong;
        const auto read = [&](const std::string& name) {
            std::ifstream file(origin.path_of(name) + "/data", std::ios::binary);
            return std::string(std::istreambuf_iterator<char>(file), {});
        };
        return read("3") == read("copy") ? std::string() : std::string("a copy has other bytes");
    });
}

TEST_F(SharedBlocks, AreSharedUntilTheOriginHasOverwrittenThemAndTheirRoomIsFreeThen) {
    on_xfs([](const std::string& root) -> std::string {
        SharingStore origin(root);
        if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
        if (origin.room_bytes() != 0) return "room is set aside for nothing";
        if (std::string wrong = origin.keep("one"); !wrong.empty()) return wrong;
        const std::string kept = origin.path_of("one") + "/data";
        const std::uint64_t all = fs::file_size(kept);
        if (shared_bytes(kept) != all) return fmt::format("{} of {} bytes are shared", shared_bytes(kept), all);
        if (origin.room_bytes() < all) return fmt::format("{} bytes of room for {}", origin.room_bytes(), all);
        if (std::string wrong = origin.go_on(1); !wrong.empty()) return wrong;
        if (shared_bytes(kept) != all || origin.room_bytes() < all) return "the other slot was shared";
        if (std::string wrong = origin.go_on(1); !wrong.empty()) return wrong;
        if (shared_bytes(kept) != 0) return fmt::format("{} bytes are shared still", shared_bytes(kept));
        return origin.room_bytes() == 0 ? "" : "room is kept for nothing";
    });
}

// Tiles that lie across the units in which XFS takes new blocks: without a word it takes up to four times their bytes.
const std::vector<store::ObjectSpec> odd_tiles = {{"a.states", 4ULL << 20, 68U << 10}};

TEST_F(SharedBlocks, CostTheOriginNoWriteOnADiskThatOthersFill) {
    on_xfs([](const std::string& root) -> std::string {
        SharingStore origin(root, odd_tiles);
        if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
        const TileSeeds seeds = origin.moving().committed();
        const store::ClientState client = origin.moving().client();
        if (std::string wrong = origin.keep("one"); !wrong.empty()) return wrong;
        fill_disk(root);
        for (std::uint64_t slot = 0; slot < slots; ++slot)
            if (std::string wrong = origin.go_on(1); !wrong.empty()) return wrong;
        if (shared_bytes(origin.path_of("one") + "/data") != 0) return "blocks are shared still";
        return origin.snapshot_difference("one", seeds, client);
    });
}

TEST_F(SharedBlocks, CostNoWriteInALaterLifeEither) {
    on_xfs([](const std::string& root) -> std::string {
        {
            SharingStore origin(root, odd_tiles);
            if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
            if (std::string wrong = origin.keep("one"); !wrong.empty()) return wrong;
        }
        fill_disk(root);
        SharingStore again(root);
        const std::uint64_t all = again.store().layout().device_bytes(0) / slots;
        if (again.room_bytes() < all) return "an opening gave the room back";
        if (std::string wrong = again.go_on(2); !wrong.empty()) return wrong;
        return again.room_bytes() == 0 ? "" : "room is kept for nothing";
    });
}

TEST_F(SharedBlocks, ThatWereRemovedGiveTheirRoomBackAtTheNextWrite) {
    on_xfs([](const std::string& root) -> std::string {
        {
            SharingStore origin(root);
            if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
            if (std::string wrong = origin.keep("one"); !wrong.empty()) return wrong;
            store::remove_snapshot(origin.path_of("one"));
            for (int i = 0; shared_bytes(origin.data()) > 0 && i < 1000; ++i)  // XFS does it a little later
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        SharingStore again(root);
        if (again.room_bytes() == 0) return "an opening writes";
        if (const auto error = again.moving().write_round(1)) return error->message;
        return again.room_bytes() == 0 ? "" : "room is kept for nothing";
    });
}

TEST_F(SharedBlocks, WithoutRoomForTheWritesToComeAreRefusedAndTheStoreGoesOn) {
    on_xfs([](const std::string& root) -> std::string {
        SharingStore origin(root);
        if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
        fill_disk(root);
        fs::resize_file(root + "/filler", fs::file_size(root + "/filler") - (2U << 20));  // of it the spare takes 2 MiB
        try {
            origin.keep("one");
            return "a snapshot without room";
        } catch (const Error& error) {
            if (error.code() != ExitCode::does_not_fit) return error.what();
        }
        if (origin.room_bytes() != 0) return "room is kept for nothing";
        return origin.go_on(3);
    });
}

// XFS refuses a reservation that is longer than what is free, whatever of its range is reserved already.
TEST_F(SharedBlocks, NeedNoMoreRoomThanIsSetAside) {
    on_xfs([](const std::string& root) -> std::string {
        SharingStore origin(root, {{"a.states", 16ULL << 20, 64U << 10}});
        if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
        const store::Layout kept(origin.store().layout().objects(), {.slots = 1});
        const std::uint64_t room_bytes = bytes_on_disk(kept) + (4U << 20);  // of it the spare takes 2 MiB
        fill_disk(root);
        fs::resize_file(root + "/filler", fs::file_size(root + "/filler") - room_bytes);
        if (std::string wrong = origin.keep("one"); !wrong.empty()) return wrong;
        return origin.go_on(2);
    });
}

// More extents than the file system tells of at once.
TEST_F(SharedBlocks, OfAnEarlierLifeAreFoundOneByOne) {
    on_xfs([](const std::string& root) -> std::string {
        constexpr std::uint64_t tile_bytes = 4096;
        constexpr std::uint32_t tiles = 4096;
        SharingStore origin(root, {{"a.states", tiles * tile_bytes, tile_bytes}});
        if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
        if (std::string wrong = origin.keep("one"); !wrong.empty()) return wrong;
        if (std::string wrong = origin.go_on(1); !wrong.empty()) return wrong;
        if (const auto error = origin.moving().write_round(tiles / 4)) return error->message;
        const std::string path = origin.data();
        fs::resize_file(path, origin.store().layout().device_bytes(0) + tile_bytes);
        aio::File data(AT_FDCWD, path, path, {.mode = aio::FileMode::read_write, .caching = aio::Caching::buffered});
        const std::uint64_t found = store::SharedSlots::find(origin.store().layout(), data)->shared_bytes();
        constexpr std::uint64_t expected = (tiles - tiles / 4) * tile_bytes;
        return found == expected ? "" : fmt::format("{} bytes are found and {} are shared", found, expected);
    });
}

TEST_F(SharedBlocks, OfAStoreWhoseLastTilesWereNeverWrittenAreAWholeSnapshot) {
    on_xfs([](const std::string& root) -> std::string {
        SharingStore origin(root);
        if (std::string wrong = origin.go_on(1); !wrong.empty()) return wrong;
        if (origin.moving().committed().back()) return "the last tile was written";
        if (std::string wrong = origin.keep("one"); !wrong.empty()) return wrong;
        return origin.snapshot_difference("one", origin.moving().committed(), origin.moving().client());
    });
}

// Killed between the two, it is an unfinished creation; both ways to keep over it.
TEST_F(SharedBlocks, ThatWereNotCommittedAreTakenOver) {
    on_xfs([](const std::string& root) -> std::string {
        {
            SharingStore origin(root);
            if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
            origin.leave_unfinished("one");
            origin.leave_unfinished("two");
        }
        SharingStore again(root);
        for (const store::ListedSnapshot& each : store::list_snapshots(again.folder()))
            if (each.manifest || !each.problem.starts_with("unfinished")) return "listed as " + each.problem;
        if (std::string wrong = again.go_on(2); !wrong.empty()) return wrong;
        const TileSeeds seeds = again.moving().committed();
        const store::ClientState client = again.moving().client();
        again.leave_unfinished("two");
        if (std::string wrong = again.keep("one"); !wrong.empty()) return wrong;
        if (std::string wrong = again.keep("two", store::Blocks::own); !wrong.empty()) return wrong;
        if (shared_bytes(again.path_of("two") + "/data") != 0) return "a copy shares blocks";
        if (std::string wrong = again.go_on(2); !wrong.empty()) return wrong;
        for (const char* name : {"one", "two"})
            if (std::string wrong = again.snapshot_difference(name, seeds, client); !wrong.empty()) return wrong;
        return {};
    });
}

TEST_F(SharedBlocks, AreThereAfterAPowerCutOnceTheSnapshotIsReported) {
    on_xfs([this](const std::string& root) -> std::string {
        TileSeeds seeds;
        store::ClientState client;
        {
            SharingStore origin(root);
            if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
            seeds = origin.moving().committed();
            client = origin.moving().client();
            if (std::string wrong = origin.keep("one"); !wrong.empty()) return wrong;
        }
        cut_power();
        SharingStore again(root);
        if (again.room_bytes() == 0) return "the room is gone";
        if (std::string wrong = again.snapshot_difference("one", seeds, client); !wrong.empty()) return wrong;
        return difference(again.io(), again.store(), seeds);
    });
}

// Damage below the file system is in both, so that the snapshot mends nothing. Here each file gets its own.
TEST_F(SharedBlocks, MendTheOriginAsLongAsTheyAreWhole) {
    on_xfs([](const std::string& root) -> std::string {
        SharingStore origin(root);
        if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
        if (std::string wrong = origin.keep("one"); !wrong.empty()) return wrong;
        const auto directory = origin.open_directory("one");
        const auto kept = store::TensorStore::open(origin.io(), {directory.get()});
        const store::TileId tile{1, 2};
        const store::StoredTile stored = origin.store().stored(tile);
        const store::TileRecord record{.hash = stored.hash, .generation = stored.identity.generation};
        const aio::ScratchMemory memory(SharingStore::longest_extent);
        const std::vector<store::TensorStore*> sources = {kept.get()};
        const auto find = [&] { return find_bytes(origin.io(), origin.store(), tile, record, sources, memory.span()); };
        const store::TileLocation place = origin.store().location(tile);
        flip_bit(place.path, place.offset_bytes);
        if (!find().source) return "the snapshot has the bytes";
        flip_bit(kept->location(tile).path, kept->location(tile).offset_bytes);
        const store::FoundBytes found = find();
        return !found.source && found.problems.size() == 1 ? "" : "damaged bytes are found";
    });
}

// Else a write to one block of them takes 128 KiB for the while.
TEST_F(SharedBlocks, TakeNoMoreNewOnesThanAreWritten) {
    on_xfs([](const std::string& root) -> std::string {
        const auto make = [&](const std::string& name) {
            return aio::File(AT_FDCWD, root + name, root + name, {.mode = aio::FileMode::create});
        };
        aio::File from = make("/from");
        const aio::File to = make("/to");
        const aio::ScratchMemory memory(1U << 20);
        if (::pwrite(from.fd(), memory.data(), 1U << 20, 0) != 1 << 20) return "not written";
        const store::BlockRun all{.from_offset_bytes = 0, .to_offset_bytes = 0, .bytes = 1U << 20};
        if (store::clone_blocks(from, to, {&all, 1}) != store::Cloned::all) return "not cloned";
        store::take_blocks_exactly(from, 4096);
        const std::uint64_t before = fs::space(root).free;
        if (::pwrite(from.fd(), memory.data(), 4096, 512 << 10) != 4096) return "not overwritten";
        const std::uint64_t taken = before - fs::space(root).free;
        return taken <= 2 * 4096 ? "" : fmt::format("{} bytes were taken for a block", taken);
    });
}

TEST_F(SharedBlocks, AreOfAnOriginThatTakesNoMoreNewOnesThanAreWritten) {
    on_xfs([](const std::string& root) -> std::string {
        SharingStore origin(root);
        if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
        if (std::string wrong = origin.keep("one"); !wrong.empty()) return wrong;
        const std::string path = origin.data();
        const aio::File data(AT_FDCWD, path, path, {.mode = aio::FileMode::read_only});
        fsxattr found{};
        if (::ioctl(data.fd(), FS_IOC_FSGETXATTR, &found) != 0) return "not told";
        const bool exact = (found.fsx_xflags & FS_XFLAG_COWEXTSIZE) != 0;
        return exact && found.fsx_cowextsize == origin.store().granule_bytes() ? "" : "the data has no such hint";
    });
}

// tmpfs has no blocks to share: copied, without a word.
TEST(SharedBlocksElsewhere, AreCopied) {
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    const auto body = [&]() -> std::string {
        SharingStore origin(scratch.path());
        if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
        const TileSeeds seeds = origin.moving().committed();
        const store::ClientState client = origin.moving().client();
        if (std::string wrong = origin.keep("one", store::Blocks::shared, store::Blocks::own); !wrong.empty())
            return wrong;
        if (origin.room_bytes() != 0) return "room is set aside for nothing";
        if (std::string wrong = origin.go_on(2); !wrong.empty()) return wrong;
        return origin.snapshot_difference("one", seeds, client);
    };
    const MountOutcome outcome = run_with_mounts([&] { return mount_tmpfs(scratch.path(), 16U << 20); }, body);
    if (!outcome.allowed) GTEST_SKIP() << "file systems of a test's own cannot be mounted here";
    EXPECT_EQ(outcome.text, "");
}

}  // namespace
}  // namespace penstock::testing
