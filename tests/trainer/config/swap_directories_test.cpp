#include "trainer/config/swap_directories.h"
#include "aio/words/error.h"

#include "aio/profile.h"
#include "tests/refusal.h"
#include "tests/trainer/data/text_files.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace penstock::trainer {
namespace {

std::vector<SettingDirectory> read(const std::string& value, const std::vector<std::string>& more = {}) {
    std::vector<std::string> overrides = more;
    if (!value.empty()) overrides.push_back("run.swap_directory=" + value);
    Settings settings = Settings::parse(R"({"data": {"train": "x"}, "memory": {"host_budget": "64MiB"},
                                            "run": {"directory": "r", "steps": 30}})",
                                        "test.json", overrides);
    return swap_directories(settings);
}

std::string refusal(const std::string& value, const std::vector<std::string>& more = {}) {
    return refusal_of(ExitCode::usage, [&] { read(value, more); });
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(SwapDirectories, AreAPathOrAListOfPathsWithOrWithoutBandwidth) {
    EXPECT_EQ(read("a"), (std::vector<SettingDirectory>{{.path = "a"}}));
    EXPECT_EQ(read("17"), (std::vector<SettingDirectory>{{.path = "17"}}));
    EXPECT_EQ(read(R"(["a", "b"])"), (std::vector<SettingDirectory>{{.path = "a"}, {.path = "b"}}));
    EXPECT_EQ(read(R"([{"path": "a", "bandwidth": "1GiB"}, {"path": "b", "bandwidth": "auto"}])"),
              (std::vector<SettingDirectory>{{.path = "a", .bandwidth = SettingBandwidth{0x1p30}},
                                             {.path = "b", .bandwidth = SettingBandwidth{}}}));
    const std::string path = "zero_optimization.offload_param.nvme_path=a";
    EXPECT_EQ(read("", {path}), (std::vector<SettingDirectory>{{.path = "a"}}));
    EXPECT_EQ(read("a", {path}), (std::vector<SettingDirectory>{{.path = "a"}}));
}

TEST(SwapDirectories, RefusesWhatMakesNoSense) {
    EXPECT_TRUE(has(refusal(R"(["a", "a"])"), "names a twice"));
    EXPECT_TRUE(
        has(refusal(R"([{"path": "a", "bandwidth": 5}, "b"])"), "a bandwidth (\"auto\": of its profile), or none"));
    for (const char* bad : {"[]", "[1]", R"([""])", R"([{"path": "a", "speed": 1}])", R"([{"bandwidth": 1}])",
                            R"([{"path": "a", "bandwidth": 0}])", R"([{"path": "a", "bandwidth": "fast"}])"})
        EXPECT_TRUE(has(refusal(bad), "key 'run.swap_directory' is")) << refusal(bad);
    EXPECT_TRUE(has(refusal(""), "no directory for the checkpoint store"));
    EXPECT_TRUE(has(refusal(R"(["a", "b"])", {"zero_optimization.offload_param.nvme_path=a"}), "leave one out"));
}

TEST(SwapDirectories, SharesFollowTheBandwidths) {
    const auto at = [](const std::string& path, double bandwidth) {
        return SettingDirectory{.path = path, .bandwidth = SettingBandwidth{bandwidth}};
    };
    EXPECT_TRUE(swap_shares({at("a", 5)}).shares.empty());
    EXPECT_TRUE(swap_shares({{.path = "a"}, {.path = "b"}}).shares.empty());
    EXPECT_EQ(swap_shares({at("a", 3e9), at("b", 1e9)}).shares, (std::vector<std::uint16_t>{3, 1}));
}

TEST(SwapDirectories, AutoTakesBothRatesOfTheProfiles) {
    const TemporaryDirectory directory;
    std::vector<SettingDirectory> directories;
    for (const char* name : {"a", "b"}) {
        std::filesystem::create_directory(directory / name);
        directories.push_back({.path = directory / name, .bandwidth = SettingBandwidth{}});
    }
    const SwapShares unknown = swap_shares(directories);
    EXPECT_TRUE(unknown.shares.empty());
    EXPECT_TRUE(has(unknown.note, "equal shares: nothing was measured about " + directory / "a")) << unknown.note;
    // Reads alone would give 1 : 1, sustained writes alone 7 : 1; together they take 2 and 8 s for 1 GB each way.
    const auto profile = [](double write) {
        return aio::DeviceProfile{.made = "2026-11-21T10:00:00Z",
                                  .read_bytes_per_second = 1e9,
                                  .overwrite_bytes_per_second = 9e9,
                                  .sustained_write_bytes_per_second = write};
    };
    write_profile(directory / "a/penstock-profile.json", profile(1e9));
    write_profile(directory / "b/penstock-profile.json", profile(1e9 / 7));
    EXPECT_EQ(swap_shares(directories).shares, (std::vector<std::uint16_t>{4, 1}));
}

}  // namespace
}  // namespace penstock::trainer
