#include "trainer/config/swap_directories.h"

#include "aio/profile.h"
#include "aio/words/error.h"
#include "swap/format/disk_place.h"
#include "swap/format/striping.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

namespace penstock::trainer {
namespace {

[[noreturn]] void refuse(const Settings& settings, const std::string& problem) {
    throw Error(ExitCode::usage, settings.file() + ": " + problem);
}

// However they are spelled.
void check_apart(const Settings& settings, const std::vector<SettingDirectory>& directories) {
    for (auto one = directories.begin(); one != directories.end(); ++one) {
        for (auto before = directories.begin(); before != one; ++before) {
            if (!(store::DiskPlace(one->path) == store::DiskPlace(before->path))) continue;
            const std::string same = one->path == before->path ? "" : fmt::format(" ({} is the same)", before->path);
            refuse(settings, fmt::format("run.swap_directory names {} twice{}", one->path, same));
        }
    }
}

void check(const Settings& settings, const std::vector<SettingDirectory>& directories) {
    std::size_t with_bandwidth = 0;
    for (const SettingDirectory& directory : directories) with_bandwidth += directory.bandwidth.has_value() ? 1 : 0;
    check_apart(settings, directories);
    if (directories.size() > store::max_device_count)
        refuse(settings, fmt::format("run.swap_directory has {} directories; a store has at most {}",
                                     directories.size(), store::max_device_count));
    if (with_bandwidth != 0 && with_bandwidth != directories.size())
        refuse(settings, "run.swap_directory: give each directory a bandwidth (\"auto\": of its profile), or none");
}

// A step reads and writes about as many bytes: the rate over both.
std::optional<double> measured_bandwidth(const std::string& directory) {
    const std::optional<aio::FoundProfile> found = aio::find_profile(directory);
    if (!found) return std::nullopt;
    const std::optional<double> read = found->profile.read_bytes_per_second;
    const std::optional<double> write = found->profile.planned_write_bytes_per_second();
    if (!read || !write || !(*read > 0) || !(*write > 0)) return std::nullopt;
    return 2 / (1 / *read + 1 / *write);
}

}  // namespace

std::vector<SettingDirectory> swap_directories(const Settings& settings) {
    constexpr auto param = "zero_optimization.offload_param.nvme_path";
    constexpr auto optimizer = "zero_optimization.offload_optimizer.nvme_path";
    constexpr auto own = "run.swap_directory";
    std::vector<SettingDirectory> found;
    const char* found_key = nullptr;
    for (const char* key : {param, optimizer, own}) {
        if (!settings.given(key)) continue;
        const std::vector<SettingDirectory> these =
            key == own ? settings.directories(key) : std::vector<SettingDirectory>{{.path = settings.text(key)}};
        if (found_key != nullptr && these != found)
            refuse(settings, fmt::format("{} \"{}\" is not {} \"{}\"; there is one store: leave one out", key,
                                         settings.spelled(key), found_key, settings.spelled(found_key)));
        found = these;
        found_key = key;
    }
    if (found_key == nullptr)
        refuse(settings, fmt::format("no directory for the checkpoint store: give {} or {}", param, own));
    check(settings, found);
    return found;
}

SwapShares swap_shares(const std::vector<SettingDirectory>& directories) {
    if (directories.size() < 2 || !directories.front().bandwidth) return {};
    std::vector<double> bandwidths;
    for (const SettingDirectory& directory : directories) {
        const double given = directory.bandwidth->bytes_per_second;
        const auto bandwidth = given > 0 ? std::optional(given) : measured_bandwidth(directory.path);
        if (!bandwidth)
            return {.shares = {},
                    .note = fmt::format("the swap directories get equal shares: nothing was measured about {}; "
                                        "`penstock bench io --tune --dir {}` does",
                                        directory.path, directory.path)};
        bandwidths.push_back(*bandwidth);
    }
    SwapShares made{.shares = store::stripe_shares(bandwidths), .note = {}};
    made.note = fmt::format("a new store's tiles go to the swap directories as {}", fmt::join(made.shares, " : "));
    return made;
}

}  // namespace penstock::trainer
