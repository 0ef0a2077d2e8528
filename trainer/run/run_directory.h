// run.directory: where the log and the summary of one run go, and whose they are.
#pragma once

#include "swap/format/manifest.h"
#include "trainer/data/plain_file.h"

#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

// What a directory holds before a session opens it.
struct StoreSeen {
    std::optional<store::StoreUuid> uuid;  // nothing: it is no store's
    bool committed = false;
    bool empty = false;                      // nothing is there, or nothing but snapshots
    std::optional<store::StoreUuid> origin;  // of a kept snapshot: the store that it was copied from
};
StoreSeen see_store(const std::string& directory);  // takes no lock; what cannot be read is no store

// RUN/store.json names the store that log and summary are of, by its uuid and its place, and is locked while this
// lives: two runs never write into one directory. A directory without that file is taken as it is.
class RunDirectory {
   public:
    // Makes and locks the directory for a run whose store is, or will be, in `store_directory`. Throws Error: usage (it
    // cannot be made; what is in it is of another store, which is still there), storage (another process writes there).
    RunDirectory(const std::string& path, const std::string& store_directory);

    enum class Start : std::uint8_t { resumed, begun };
    // The store has been opened and is `store`. What the directory has of another run, or of a run that this one begins
    // anew, gets names of its own. Returns what is to be said. A run that went on from a snapshot of `origin` goes on
    // with the log of that store too. Throws Error (storage).
    std::vector<std::string> adopt(const store::StoreUuid& store, Start start,
                                   const std::optional<store::StoreUuid>& origin);

    // Whether what is in it is known to be of that store.
    bool is_of(const store::StoreUuid& store) const { return owner_ && owner_->store == store::to_string(store); }
    bool is_of_some_store() const { return owner_.has_value(); }

    std::string log() const { return path("log.jsonl"); }
    std::string summary() const { return path("summary.json"); }

   private:
    struct Owner {
        std::string store;      // its uuid
        std::string directory;  // absolute
        bool operator==(const Owner&) const = default;
    };

    std::string path(const char* name) const;
    void lock();
    std::optional<Owner> read_owner() const;
    void refuse_if_of_another() const;

    std::string path_;
    std::string store_directory_;
    PlainFile file_;
    std::optional<Owner> owner_;
};

}  // namespace penstock::trainer
