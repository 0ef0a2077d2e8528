#include "trainer/ckpt/retention.h"

#include "swap/directory/descriptor.h"
#include "swap/directory/store_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace penstock::trainer {
namespace {

constexpr std::string_view step_prefix = "step-";

std::optional<std::uint64_t> step_of(const std::string& name) {
    if (name.compare(0, step_prefix.size(), step_prefix) != 0) return std::nullopt;
    const std::string digits = name.substr(step_prefix.size());
    if (digits.empty() || digits.size() > 19 || digits.find_first_not_of("0123456789") != std::string::npos)
        return std::nullopt;
    const std::uint64_t step = std::stoull(digits);
    return step_name(step) == name ? std::optional(step) : std::nullopt;  // "step-007" is somebody's own name
}

// Where nothing else is there. A kill or a power cut fell between the making of the lock file and the end of its words:
// nothing was copied yet. Whoever is about to write them holds it.
bool remove_unfinished_lock(const std::string& directory) {
    std::error_code unknown;
    int entries = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory, unknown)) {
        static_cast<void>(entry);
        ++entries;
    }
    const std::string lock = directory + "/" + store::StoreDirectory::lock_name;
    const store::Descriptor file(::open(lock.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    if (unknown || entries != 1 || !file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
    std::array<char, store::lock_file_bytes> text{};
    const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
    return got >= 0 && store::is_unfinished_lock({text.data(), static_cast<std::size_t>(got)}) &&
           ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 && ::unlink(lock.c_str()) == 0;
}

}  // namespace

std::string step_name(std::uint64_t step) {
    return fmt::format("{}{}", step_prefix, step);
}

std::vector<store::ListedSnapshot> beyond_retention(const std::vector<store::ListedSnapshot>& snapshots,
                                                    const store::StoreUuid& of, std::uint64_t count) {
    std::vector<store::ListedSnapshot> own;
    std::copy_if(
        snapshots.begin(), snapshots.end(), std::back_inserter(own),
        [&of](const store::ListedSnapshot& snapshot) { return is_copy_of(snapshot, of) && step_of(snapshot.name); });
    const auto age = [](const store::ListedSnapshot& one) {
        return std::pair(one.manifest->origin->generation, *step_of(one.name));
    };
    std::sort(own.begin(), own.end(),
              [&age](const store::ListedSnapshot& a, const store::ListedSnapshot& b) { return age(a) < age(b); });
    own.resize(own.size() - std::min<std::uint64_t>(count, own.size()));
    return own;
}

std::vector<store::ListedSnapshot> left_unfinished(const std::vector<store::ListedSnapshot>& snapshots,
                                                   const std::string& job) {
    std::vector<store::ListedSnapshot> left;
    std::copy_if(snapshots.begin(), snapshots.end(), std::back_inserter(left),
                 [&job](const store::ListedSnapshot& snapshot) {
                     return snapshot.unfinished && snapshot.job == job && step_of(snapshot.name);
                 });
    return left;
}

int remove_empty_snapshots(const std::string& folder) {
    int removed = 0;
    std::error_code unknown;
    for (const auto& entry : std::filesystem::directory_iterator(folder, unknown)) {
        const std::string path = entry.path().string();
        if (!step_of(entry.path().filename().string())) continue;
        // rmdir() itself refuses what is not empty or no directory.
        if (::rmdir(path.c_str()) == 0 || (remove_unfinished_lock(path) && ::rmdir(path.c_str()) == 0)) ++removed;
    }
    return removed;
}

}  // namespace penstock::trainer
