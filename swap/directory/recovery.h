// Which generation of a store is the newest whole one. Reads the manifests, decides, changes nothing.
#pragma once

#include "swap/format/manifest.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::store {

inline constexpr const char* data_file_name = "data";
inline constexpr std::array<const char*, 2> manifest_file_names = {"manifest.0", "manifest.1"};
inline constexpr std::uint64_t max_manifest_file_bytes = 2ULL
                                                         << 30;  // two places; see the limits in swap/format/layout.h

// One of the two copies in one of the two manifest files.
struct ManifestCopy {
    enum class State : std::uint8_t {
        missing,    // there is no such file
        blank,      // zeros: never committed to
        whole,      // a manifest of this store
        broken,     // read, and not right: unfinished, damaged or of another store; `problem` says why
        unread,     // opening or reading it failed; nobody knows what it holds; `problem` says why
        disproved,  // whole, but tiles that it names are damaged, and the generation before is used
    };
    State state = State::missing;
    bool no_good() const noexcept { return state == State::broken || state == State::unread; }
    std::uint64_t offset_bytes = 0;
    std::uint64_t generation = 0;
    std::optional<StoreUuid> store;  // whose it is, of one that is right in itself
    std::string problem;
};

struct Recovery {
    std::array<std::array<ManifestCopy, 2>, 2> copies;  // [file][copy]
    std::optional<Manifest> newest;
    std::optional<Manifest> previous;  // of the generation just before, by the same or an earlier life, if it is whole
    // Nothing that an earlier user had under way could still change the manifests when they were read: then this holds
    // for as long as the directory is locked, and they need not be read again.
    bool settled = false;

    // Goes back: previous becomes the newest, and the copies of what was the newest are disproved. REQUIRES: previous.
    void use_previous();
    // No commit of this store was ever reported: nothing is there but what an interrupted creation leaves.
    bool never_committed() const noexcept;
    bool unread() const noexcept;  // some copy: what is said of the others may change when it can be read
    // Lines of problems() for a file that could not be read and may hold a generation that was reported and is newer
    // than `newest`; empty where there is none. A commit is reported when both copies are in their file, so one copy
    // that is whole or blank says that no other was.
    std::vector<std::string> hidden(const std::string& directory_path) const;
    // Whether the file of the generation before `newest` says nothing of it, neither whole nor cut by a kill: then
    // files were damaged, lost or put back from elsewhere, and the store may be older than what it had reported.
    bool doubtful() const noexcept;
    // One line per copy that is broken or unread, with path and offset.
    std::vector<std::string> problems(const std::string& directory_path) const;

   private:
    void add_problems(std::size_t file, const std::string& directory_path, std::vector<std::string>& lines) const;
};

class StoreDirectory;

// `store` is the uuid that manifests must carry. Problems of reading are states of copies, not exceptions: only what
// was read can be broken.
Recovery recover(int directory_fd, const StoreUuid& store);
// Of the store whose first directory it is. Only this finds it settled, because the directory is locked.
// Whose the manifests that are right in themselves are: no store's, one's, or more where files were put together.
std::vector<StoreUuid> stores_of_manifests(int directory_fd);
Recovery recover(const StoreDirectory& directory);

}  // namespace penstock::store
