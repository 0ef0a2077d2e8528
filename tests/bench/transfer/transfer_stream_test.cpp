#include "aio/words/error.h"
#include "bench/transfer/transfer_rig.h"
#include "tests/aio/fakes/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace penstock::bench {
namespace {

constexpr std::uint64_t tile = 64 << 10;

class Streams : public ::testing::Test {
   protected:
    // 37 tiles, the last of one granule, through three leases; the device is slower than the drive or the other way.
    TransferOptions options(std::chrono::microseconds copy_delay = std::chrono::microseconds(0)) const {
        return {.directory = directory_.file(""),
                .bytes = 36 * tile + pool::granule_bytes,
                .tile_bytes = tile,
                .tiles_on_their_way = 3,
                .device = zero::DeviceKind::emulated,
                .copy_delay = copy_delay};
    }
    static void whole_way(TransferRig& rig, Way way, std::uint64_t seed) {
        rig.prepare(way, seed);
        TransferStream stream = rig.stream(way, Links::both);
        run({&stream});
        EXPECT_TRUE(stream.finished());
    }
    static pool::UseFigures figures(const TransferRig& rig, const char* use) {
        return rig.pool().figures(rig.pool().use(use));
    }

    TemporaryDirectory directory_;
};

TEST_F(Streams, BringEveryByteThereAndBack) {
    for (const auto delay : {std::chrono::microseconds(0), std::chrono::microseconds(300)}) {
        TransferRig rig(options(delay));
        whole_way(rig, Way::in, 1);
        EXPECT_TRUE(rig.arrived(Way::in, 1));
        EXPECT_FALSE(rig.arrived(Way::in, 2)) << "the comparison must be able to fail";
        whole_way(rig, Way::out, 3);
        EXPECT_TRUE(rig.arrived(Way::out, 3));
        EXPECT_FALSE(rig.arrived(Way::out, 1));
    }
}

TEST_F(Streams, GoBothWaysAtOnce) {
    TransferRig rig(options(std::chrono::microseconds(100)));
    rig.prepare(Way::in, 5);
    rig.prepare(Way::out, 6);
    TransferStream in = rig.stream(Way::in, Links::both);
    TransferStream out = rig.stream(Way::out, Links::both);
    run({&in, &out});
    EXPECT_TRUE(rig.arrived(Way::in, 5));
    EXPECT_TRUE(rig.arrived(Way::out, 6));
}

TEST_F(Streams, ParkALeaseUntilItsCopyEndsAndNeverHaveMoreThanTheRing) {
    TransferRig rig(options(std::chrono::microseconds(300)));
    whole_way(rig, Way::in, 1);
    const pool::UseFigures in = figures(rig, "in");
    EXPECT_EQ(in.leases, 37U);
    EXPECT_EQ(in.peak_bytes, 3 * tile);
    EXPECT_GE(in.peak_parked_bytes, tile);
    EXPECT_EQ(in.granted_bytes, 0U);
    whole_way(rig, Way::out, 2);
    EXPECT_EQ(figures(rig, "out").peak_bytes, 3 * tile);
    EXPECT_EQ(figures(rig, "out").granted_bytes, 0U);
}

TEST_F(Streams, PassOneLinkAlone) {
    TransferRig rig(options());
    for (const Links links : {Links::drive, Links::copy}) {
        TransferStream in = rig.stream(Way::in, links);
        TransferStream out = rig.stream(Way::out, links);
        run({&in});
        run({&out});
        EXPECT_TRUE(in.finished() && out.finished());
    }
    EXPECT_EQ(figures(rig, "in").leases, 2 * 37U);
    EXPECT_EQ(figures(rig, "in").peak_parked_bytes, tile * 3) << "copies alone park as well";
}

TEST_F(Streams, OfTheCpuDeviceAreTheDriveAlone) {
    TransferOptions cpu = options();
    cpu.device = zero::DeviceKind::cpu;
    TransferRig rig(cpu);
    EXPECT_FALSE(rig.has_device_memory());
    TransferStream in = rig.stream(Way::in, Links::drive);
    run({&in});
    EXPECT_TRUE(in.finished());
    EXPECT_DEATH(rig.stream(Way::in, Links::both), "device cpu makes no copies");
}

// A file that ends before the stream does: the read's error ends the run with path and offset.
TEST_F(Streams, SayWhatTheDriveRefused) {
    aio::File file(AT_FDCWD, directory_.file("short"), "short", {.mode = aio::FileMode::create});
    file.reserve(tile);
    pool::Budget budget(4 * tile, "");
    budget.add({.name = "ring", .bytes = tile, .setting = {}});  // one after the other: the second tile fails
    pool::PinnedPool pool(budget, pool::MachineMemory::read(), {});
    std::vector<TileTransfer> transfers(1);
    aio::Io io(aio::make_thread_backend({}), {});
    TransferStream stream(Way::in, Links::drive,
                          {.io = &io,
                           .pool = &pool,
                           .use = pool.use("ring"),
                           .transfers = transfers,
                           .file = &file,
                           .bytes = 8 * tile,
                           .tile_bytes = tile});
    try {
        run({&stream});
        ADD_FAILURE() << "the file is too short";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::storage);
        EXPECT_NE(std::string(error.what()).find("read short at offset 65536"), std::string::npos) << error.what();
    }
}

TEST_F(Streams, LeaveNothingBehindAndRefuseWhatMakesNoSense) {
    { const TransferRig rig(options()); }
    EXPECT_TRUE(std::filesystem::is_empty(directory_.file("")));
    const auto refused = [](const TransferOptions& wrong, const char* words) {
        try {
            const TransferRig rig(wrong);
            ADD_FAILURE() << words;
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::usage);
            EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
        }
    };
    TransferOptions wrong = options();
    wrong.directory = directory_.file("missing");
    refused(wrong, "missing is no directory");
    wrong = options();
    wrong.tile_bytes = 1000;
    refused(wrong, "--tile: 1000");
    wrong = options();
    wrong.bytes = 4097;
    refused(wrong, "--size: 4097");
}

}  // namespace
}  // namespace penstock::bench
