#include "aio/profile.h"

#include "aio/backend.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "aio/words/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

namespace penstock::aio {
namespace {

using nlohmann::ordered_json;

constexpr int format_version = 1;
constexpr std::uint64_t shortest_block = 4096;
constexpr std::uint64_t most_in_flight = 1ULL << 36;  // far above any device's need: a slip of the pen
constexpr std::uintmax_t longest_text = 64U << 10;    // a hundred times what write_profile() writes

// What is wrong with the text of a profile; find_profile adds the file.
struct Unfit {
    std::string what;
};

// Takes the keys out one by one, so that what is left at the end is unknown.
class ProfileReader {
   public:
    explicit ProfileReader(ordered_json object) : object_(std::move(object)) {}

    std::string text(const char* key) {
        const ordered_json value = take(key);
        if (!value.is_string()) throw Unfit{fmt::format("key '{}' is {}; expected text", key, value.dump())};
        return value.get<std::string>();
    }

    std::uint64_t bytes(const char* key, std::uint64_t low, std::uint64_t high) {
        const ordered_json value = take(key);
        if (value.is_number_unsigned() && value.get<std::uint64_t>() >= low && value.get<std::uint64_t>() <= high)
            return value.get<std::uint64_t>();
        throw Unfit{fmt::format("key '{}' is {}; expected bytes from {} to {}", key, value.dump(), low, high)};
    }

    std::optional<double> rate(const char* key) {
        const ordered_json value = take(key);
        if (value.is_null()) return std::nullopt;
        if (value.is_number() && value.get<double>() > 0) return value.get<double>();
        throw Unfit{fmt::format("key '{}' is {}; expected bytes per second, or null", key, value.dump())};
    }

    std::optional<std::uint64_t> count(const char* key) {
        const ordered_json value = take(key);
        if (value.is_null()) return std::nullopt;
        if (value.is_number_unsigned()) return value.get<std::uint64_t>();
        throw Unfit{fmt::format("key '{}' is {}; expected bytes, or null", key, value.dump())};
    }

    void refuse_rest() const {
        if (!object_.empty()) throw Unfit{fmt::format("key '{}' is unknown", object_.begin().key())};
    }

   private:
    ordered_json take(const char* key) {
        const auto found = object_.find(key);
        if (found == object_.end()) throw Unfit{fmt::format("key '{}' is missing", key)};
        ordered_json value = std::move(*found);
        object_.erase(found);
        return value;
    }

    ordered_json object_;
};

// Stops at the first nested value: none belongs here, and copying or printing a deep one would exhaust the stack.
bool is_flat(int depth, ordered_json::parse_event_t event, const ordered_json&) {
    const bool opens =
        event == ordered_json::parse_event_t::object_start || event == ordered_json::parse_event_t::array_start;
    if (opens && depth > 0) throw Unfit{"it has a value with values in it; each is text, a number or null"};
    return true;
}

DeviceProfile parse_profile(const std::string& text) {
    const ordered_json root = ordered_json::parse(text, is_flat, false);
    if (root.is_discarded() || !root.is_object()) throw Unfit{"it is no JSON object"};
    ProfileReader reader(root);
    if (const std::uint64_t version = reader.bytes("version", 0, UINT64_MAX); version != format_version) {
        throw Unfit{fmt::format("key 'version' is {}; this program knows {}", version, format_version)};
    }
    DeviceProfile profile;
    profile.made = reader.text("made");
    profile.machine = reader.text("machine");
    profile.block_bytes = static_cast<std::uint32_t>(reader.bytes("block_bytes", shortest_block, max_attempt_bytes));
    if (!std::has_single_bit(profile.block_bytes)) {
        throw Unfit{fmt::format("key 'block_bytes' is {}; expected a power of two", profile.block_bytes)};
    }
    profile.read_in_flight_bytes = reader.bytes("read_in_flight_bytes", profile.block_bytes, most_in_flight);
    profile.write_in_flight_bytes = reader.bytes("write_in_flight_bytes", profile.block_bytes, most_in_flight);
    profile.read_bytes_per_second = reader.rate("read_bytes_per_second");
    profile.overwrite_bytes_per_second = reader.rate("overwrite_bytes_per_second");
    profile.first_write_bytes_per_second = reader.rate("first_write_bytes_per_second");
    profile.sustained_write_bytes_per_second = reader.rate("sustained_write_bytes_per_second");
    profile.write_cache_bytes = reader.count("write_cache_bytes");
    reader.refuse_rest();
    return profile;
}

template <typename Value>
ordered_json or_null(const std::optional<Value>& value) {
    return value ? ordered_json(*value) : ordered_json(nullptr);
}

std::string text_of(const DeviceProfile& profile) {
    const ordered_json root = {
        {"version", format_version},
        {"made", profile.made},
        {"machine", profile.machine},
        {"block_bytes", profile.block_bytes},
        {"read_in_flight_bytes", profile.read_in_flight_bytes},
        {"write_in_flight_bytes", profile.write_in_flight_bytes},
        {"read_bytes_per_second", or_null(profile.read_bytes_per_second)},
        {"overwrite_bytes_per_second", or_null(profile.overwrite_bytes_per_second)},
        {"first_write_bytes_per_second", or_null(profile.first_write_bytes_per_second)},
        {"sustained_write_bytes_per_second", or_null(profile.sustained_write_bytes_per_second)},
        {"write_cache_bytes", or_null(profile.write_cache_bytes)},
    };
    return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

[[noreturn]] void refuse(const std::string& path, std::string_view what) {
    throw Error(ExitCode::usage,
                fmt::format("{}: {}; correct it, remove it, or measure again with `penstock bench io --tune --dir {}`.",
                            path, what, std::filesystem::path(path).parent_path().string()));
}

// It may be right all the same.
[[noreturn]] void refuse_unread(const std::string& path, const std::string& cause) {
    throw Error(
        ExitCode::usage,
        fmt::format("{}: the device's profile cannot be read: {}; check its permissions and the device (dmesg), "
                    "then try again, or move it away and measure again with `penstock bench io --tune --dir {}`.",
                    path, cause, std::filesystem::path(path).parent_path().string()));
}

// Whoever may write to a parent directory may put anything there: a pipe would make us wait for ever.
DeviceProfile read_profile(const std::string& path) {
    std::error_code error;
    const bool regular = std::filesystem::is_regular_file(path, error);
    if (error) refuse_unread(path, error.message());
    if (!regular) refuse(path, "it is no regular file");
    const std::uintmax_t text_bytes = std::filesystem::file_size(path, error);
    if (error) refuse_unread(path, error.message());
    if (text_bytes > longest_text)
        refuse(path, fmt::format("it is longer than {} bytes, as no profile is", longest_text));
    std::ifstream file(path, std::ios::binary);
    try {
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        if (!file) refuse_unread(path, "no reason is given");
        return parse_profile(text);
    } catch (const std::ios_base::failure& failure) {  // thrown by the buffer itself
        refuse_unread(path, failure.code().message());
    } catch (const Unfit& unfit) {
        refuse(path, unfit.what);
    }
}

// The nearest existing parent, without links: where the directory will be on the disk.
std::filesystem::path settled(const std::string& directory) {
    std::error_code error;
    std::filesystem::path path = std::filesystem::absolute(directory, error);
    while (!error && path.has_relative_path()) {
        std::error_code missing;
        const std::filesystem::path real = std::filesystem::canonical(path, missing);
        if (!missing) return std::filesystem::is_directory(real, missing) ? real : real.parent_path();
        path = path.parent_path();
    }
    return "/";
}

std::optional<dev_t> device_of(const std::filesystem::path& path) {
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) return std::nullopt;
    return status.st_dev;
}

struct stat named(const std::string& path) {
    struct stat status = {};
    if (::lstat(path.c_str(), &status) != 0) refuse_unread(path, errno_text(errno));
    return status;
}

bool is_there(const std::string& path) {
    struct stat status = {};
    if (::stat(path.c_str(), &status) == 0) return true;
    // A folder that may not be looked into has no profile for us; what is in it is told by who must use it.
    if (errno == ENOENT || errno == EACCES) return false;
    const int error = errno;
    if (named(path).st_uid == ::geteuid()) refuse_unread(path, errno_text(error));
    return true;  // somebody else's
}

// Why others decide what is in it, or nothing. A link is who made it.
std::string distrust(const struct stat& file, const std::filesystem::path& folder) {
    struct stat around = {};
    if (::stat(folder.c_str(), &around) != 0) return errno_text(errno);
    if (file.st_uid != 0 && file.st_uid != ::geteuid())
        return fmt::format("it belongs to another user ({})", file.st_uid);
    if (!S_ISLNK(file.st_mode) && (file.st_mode & S_IWOTH) != 0) return "everybody may write to it (chmod o-w)";
    if ((around.st_mode & S_IWOTH) != 0 && (around.st_mode & S_ISVTX) == 0)
        return "everybody may replace it (chmod o-w, of its directory)";
    return {};
}

[[noreturn]] void fail(const std::string& path, const char* action, int errno_value) {
    throw Error(ExitCode::storage, fmt::format("{}: {}: {}; check the directory and its free space.", path, action,
                                               errno_text(errno_value)));
}

}  // namespace

InFlightLimits in_flight_limits(const DeviceProfile& profile) noexcept {
    const std::uint64_t block = profile.block_bytes;
    InFlightLimits limits;
    // Prefetch and scrub together are at most the reads, and each takes a block.
    limits.read_bytes = std::max(profile.read_in_flight_bytes, 2 * block);
    limits.scrub_bytes = std::max(limits.read_bytes / 8, block);
    limits.prefetch_bytes =
        std::min(std::max(limits.read_bytes / 4 * 3, block), limits.read_bytes - limits.scrub_bytes);
    limits.write_back_bytes = std::max(profile.write_in_flight_bytes, block);
    limits.write_bytes = limits.write_back_bytes + std::max(limits.write_back_bytes / 8, block);
    limits.throttled_bytes = std::max(limits.write_back_bytes / 2, block);
    return limits;
}

std::optional<FoundProfile> find_profile(const std::string& directory, std::vector<std::string>* notes) {
    std::filesystem::path at = settled(directory);
    const std::optional<dev_t> device = device_of(at);
    while (device && device_of(at) == device) {
        const std::string path = (at / profile_name).string();
        std::string passed_over;
        if (is_there(path)) {
            const struct stat file = named(path);
            passed_over = distrust(file, at);
            if (passed_over.empty()) {
                try {
                    return FoundProfile{read_profile(path), path};
                } catch (const Error& error) {
                    if (file.st_uid == ::geteuid()) throw;
                    passed_over = error.what();
                }
            }
            if (notes != nullptr)
                notes->push_back(fmt::format("the device's profile {} is passed over: {}", path, passed_over));
        }
        if (!at.has_relative_path()) break;
        at = at.parent_path();
    }
    return std::nullopt;
}

void write_profile(const std::string& path, const DeviceProfile& profile) {
    const std::string partial = fmt::format("{}.{}.tmp", path, ::getpid());
    const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) fail(partial, "the profile cannot be created", errno);
    int error = write_whole(fd, text_of(profile));
    if (::close(fd) != 0 && error == 0) error = errno;
    if (error == 0) error = give_name(partial, path);
    if (error == 0) return;
    ::unlink(partial.c_str());  // where the profile has its name by now, there is none
    fail(path, "the profile cannot be written", error);
}

}  // namespace penstock::aio
