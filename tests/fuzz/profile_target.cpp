// aio::find_profile(): refuses with Error (usage) or takes a profile whose bounds an Io accepts and that is written and
// read back the same.
#include "aio/profile.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/fuzz/fuzz_target.h"

#include <filesystem>
#include <fstream>

namespace penstock::fuzz {
namespace {

std::optional<aio::DeviceProfile> find(const std::string& directory) {
    try {
        const std::optional<aio::FoundProfile> found = aio::find_profile(directory);
        PENSTOCK_CHECK(found && std::filesystem::path(found->path).filename() == aio::profile_name, "it was not found");
        return found->profile;
    } catch (const Error& error) {
        PENSTOCK_CHECK(error.code() == ExitCode::usage, "exit code {}", static_cast<int>(error.code()));
        PENSTOCK_CHECK(std::string_view(error.what()).find(aio::profile_name) != std::string_view::npos,
                       "no file in: {}", error.what());
        return std::nullopt;
    }
}

bool same(const aio::DeviceProfile& a, const aio::DeviceProfile& b) {
    return a.made == b.made && a.machine == b.machine && a.block_bytes == b.block_bytes &&
           a.read_in_flight_bytes == b.read_in_flight_bytes && a.write_in_flight_bytes == b.write_in_flight_bytes &&
           a.read_bytes_per_second == b.read_bytes_per_second &&
           a.overwrite_bytes_per_second == b.overwrite_bytes_per_second &&
           a.first_write_bytes_per_second == b.first_write_bytes_per_second &&
           a.sustained_write_bytes_per_second == b.sustained_write_bytes_per_second &&
           a.write_cache_bytes == b.write_cache_bytes;
}

void run(std::span<const std::byte> input) {
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    const std::string path = scratch.file(aio::profile_name);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    const std::optional<aio::DeviceProfile> profile = find(scratch.file(""));
    if (!profile) return;
    check_limits(in_flight_limits(*profile), profile->block_bytes);
    write_profile(path, *profile);
    const std::optional<aio::DeviceProfile> again = find(scratch.file(""));
    PENSTOCK_CHECK(again && same(*again, *profile), "it was read back as another");
}

Bytes profile_bytes(const aio::DeviceProfile& profile) {
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    const std::string path = scratch.file(aio::profile_name);
    write_profile(path, profile);
    std::ifstream in(path, std::ios::binary);
    return bytes_of(std::string{std::istreambuf_iterator<char>(in), {}});
}

std::vector<Bytes> seeds() {
    aio::DeviceProfile measured{.made = "2026-11-21T10:00:00Z", .machine = "Linux 6.18, ext4 on /dev/vda"};
    std::vector<Bytes> all = {profile_bytes(measured)};
    measured.read_bytes_per_second = 4.2e9;
    measured.overwrite_bytes_per_second = 7.4e9;
    measured.first_write_bytes_per_second = 3.4e9;
    measured.sustained_write_bytes_per_second = 1e308;
    measured.write_cache_bytes = 12'345'678;
    measured.block_bytes = 4096;
    measured.read_in_flight_bytes = 4096;
    measured.write_in_flight_bytes = 1ULL << 36;
    all.push_back(profile_bytes(measured));
    all.push_back(bytes_of("{\"version\": 2}"));
    all.push_back(bytes_of("{\"version\": " + std::string(20'000, '[') + std::string(20'000, ']') + "}"));
    return all;
}

}  // namespace

const FuzzTarget profile_target = {.name = "profile", .run = run, .mutate = nullptr, .seeds = seeds};

}  // namespace penstock::fuzz
