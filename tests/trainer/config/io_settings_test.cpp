#include "trainer/config/io_settings.h"
#include "aio/words/error.h"

#include "aio/profile.h"
#include "tests/trainer/data/text_files.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace penstock::trainer {
namespace {

constexpr std::uint64_t mib = 1U << 20;

class IoSettingsTest : public ::testing::Test {
   protected:
    // The store's directory does not exist yet, as at the first start; the profile lies above it.
    std::string store() const { return directory_ / "nvme/store"; }
    std::string profile_path() const { return directory_ / "nvme/penstock-profile.json"; }
    TrainConfig config_of(std::optional<std::uint32_t> block, std::optional<std::uint32_t> depth) const {
        TrainConfig config;
        config.swap_directories = {{.path = store()}};
        config.io_block_bytes = block;
        config.io_queue_depth = depth;
        return config;
    }
    IoSettings settings(std::optional<std::uint32_t> block, std::optional<std::uint32_t> depth) const {
        return io_settings(config_of(block, depth));
    }
    void measure() const {
        std::filesystem::create_directory(directory_ / "nvme");
        aio::write_profile(profile_path(), {.made = "2026-11-21T10:00:00Z",
                                            .block_bytes = 2 * mib,
                                            .read_in_flight_bytes = 4 * mib,
                                            .write_in_flight_bytes = 16 * mib});
    }
    static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

    TemporaryDirectory directory_;
};

TEST_F(IoSettingsTest, AutoTakesTheNearestProfileAndSaysWhichAndWhen) {
    measure();
    const IoSettings found = settings({}, {});
    EXPECT_EQ(found.limits.chunk_bytes, 2 * mib);
    EXPECT_EQ(found.limits.in_flight.read_bytes, 4 * mib);
    EXPECT_EQ(found.limits.in_flight.write_back_bytes, 16 * mib);
    EXPECT_TRUE(has(found.note, "nvme/penstock-profile.json of 2026-11-21T10:00:00Z")) << found.note;
    EXPECT_EQ(found.note.find('\n'), std::string::npos);
}

TEST_F(IoSettingsTest, WithoutAProfileTheBuiltInValuesAreSaidWithTheCommand) {
    const IoSettings found = settings({}, {});
    EXPECT_EQ(found.limits.chunk_bytes, aio::IoLimits().chunk_bytes);
    EXPECT_EQ(found.limits.in_flight.read_bytes, aio::InFlightLimits().read_bytes);
    EXPECT_EQ(found.limits.in_flight.write_back_bytes, aio::InFlightLimits().write_back_bytes);
    EXPECT_TRUE(has(found.note, "`penstock bench io --tune --dir " + store() + "`")) << found.note;
}

TEST_F(IoSettingsTest, AProfileThatAnybodyMayWriteToIsPassedOverAndSaid) {
    measure();
    std::filesystem::permissions(profile_path(), std::filesystem::perms::all);
    const IoSettings found = settings({}, {});
    EXPECT_EQ(found.limits.chunk_bytes, aio::IoLimits().chunk_bytes);
    ASSERT_EQ(found.warnings.size(), 1U);
    EXPECT_TRUE(has(found.warnings[0], profile_path() + " is passed over")) << found.warnings[0];
}

TEST_F(IoSettingsTest, AKeyThatIsGivenGoesBeforeTheProfile) {
    measure();
    const IoSettings block = settings(8 * mib, {});
    EXPECT_EQ(block.limits.chunk_bytes, 8 * mib);
    EXPECT_EQ(block.limits.in_flight.read_bytes, 16 * mib);  // two blocks at least
    EXPECT_EQ(block.limits.in_flight.write_back_bytes, 16 * mib);
    const IoSettings depth = settings({}, 3);
    EXPECT_EQ(depth.limits.chunk_bytes, 2 * mib);
    EXPECT_EQ(depth.limits.in_flight.read_bytes, 6 * mib);
    EXPECT_EQ(depth.limits.in_flight.write_back_bytes, 6 * mib);
}

// What nobody has said is the machine's, and its ranks have a part each; a block at least.
// The session divides the bounds (RankRoomTest); what is asked of the rates is of one rank.
TEST_F(IoSettingsTest, OfSeveralRanksBoundsAreTheMachinesAndRatesOneRanks) {
    measure();
    const TrainConfig config = config_of({}, {});
    const IoSettings one = io_settings(config, 1), four = io_settings(config, 4);
    EXPECT_EQ(four.limits.in_flight.write_back_bytes, 16 * mib);
    EXPECT_EQ(four.limits.in_flight.read_bytes, one.limits.in_flight.read_bytes);
    EXPECT_EQ(four.bytes_per_second, one.bytes_per_second / 4);
    EXPECT_NE(four.note.find("for writes, of 4 ranks together (from "), std::string::npos) << four.note;
    EXPECT_EQ(one.note.find("ranks"), std::string::npos) << one.note;
}

// As far as all of them were measured: one that nobody knows may be the slowest.
TEST_F(IoSettingsTest, TheDevicesTogetherMoveWhatTheirProfilesSay) {
    TrainConfig config;
    for (const char* name : {"one", "two"}) {
        std::filesystem::create_directory(directory_ / name);
        aio::write_profile(directory_.file(name) + "/penstock-profile.json",
                           {.read_bytes_per_second = 7e9,
                            .overwrite_bytes_per_second = 8e9,
                            .sustained_write_bytes_per_second = name == std::string("one") ? 5e9 : 9e9});
        config.swap_directories.push_back({.path = directory_ / name});
    }
    EXPECT_EQ(io_settings(config).bytes_per_second, 7e9 + 9e9);
    config.swap_directories.push_back({.path = directory_ / "three"});
    const IoSettings unknown = io_settings(config);
    EXPECT_EQ(unknown.bytes_per_second, 0);
    EXPECT_EQ(hash_threads_for(unknown, 1, 64), 0U);
    config.swap_directories.pop_back();
    EXPECT_EQ(hash_threads_for(io_settings(config), 64, 64), 0U);  // compute has all cores
    config.io_block_bytes = 1U << 20;
    config.io_queue_depth = 8;
    EXPECT_EQ(io_settings(config).bytes_per_second, 0);
}

TEST_F(IoSettingsTest, WithBothKeysNoProfileIsLookedAt) {
    std::filesystem::create_directory(directory_ / "nvme");
    testing::write_file(profile_path(), "broken");
    const IoSettings found = settings(static_cast<std::uint32_t>(mib), 1);
    EXPECT_EQ(found.limits.chunk_bytes, mib);
    EXPECT_EQ(found.limits.in_flight.write_back_bytes, mib);
    EXPECT_EQ(found.note, "");
    EXPECT_THROW(settings({}, 1), Error);
}

}  // namespace
}  // namespace penstock::trainer
