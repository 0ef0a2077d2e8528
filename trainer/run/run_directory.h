// run.directory: where the log and the summary of one run go, and whose they are.
#pragma once

#include "swap/format/manifest.h"
#include "trainer/data/plain_file.h"
#include "trainer/run/run_log.h"

#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

// What a directory holds before a session opens it.
struct StoreSeen {
    std::optional<store::StoreUuid> uuid;    // nothing: no lock says one
    bool committed = false;                  // a generation, perhaps damaged, or it is a further directory of a store
    bool empty = false;                      // no store is there, at most a lock that a start has left alone
    std::optional<store::StoreUuid> origin;  // of a kept snapshot: the store that it was copied from
};
StoreSeen see_store(const std::string& directory);  // takes no lock; what cannot be read is no store

// RUN/store.json names the store that log and summary are of, by its uuid and its place, and is locked while this
// lives: two runs never write into one directory. A directory without that file is known by its log. What this makes
// goes with it, unless a store is adopted.
class RunDirectory {
   public:
    // Makes and locks the directory for a run whose store is, or will be, in `store_directory`. Throws Error: usage (it
    // cannot be made; what is in it is of another store, which is still there), storage (another process writes there).
    RunDirectory(const std::string& path, const std::string& store_directory);
    ~RunDirectory();
    RunDirectory(const RunDirectory&) = delete;
    RunDirectory& operator=(const RunDirectory&) = delete;

    enum class Start : std::uint8_t { resumed, begun };
    // The store has been opened and is `store`, and the log is of `kin` to it. What the directory has of another run,
    // or of a run that this one begins anew, gets names of its own. Returns what is to be said. A run that went on from
    // a snapshot of `origin` goes on with the log of that store too. Throws Error (storage).
    std::vector<std::string> adopt(const store::StoreUuid& store, Start start, LogKin kin,
                                   const std::optional<store::StoreUuid>& origin);

    // Whether store.json says that what is in it is of that store.
    bool is_of(const store::StoreUuid& store) const { return owner_ && owner_->store == store; }
    // Whether the log may be of that store: store.json says so, or nothing, or it names another one in the same place
    // and is belied by the log.
    bool may_be_of(const store::StoreUuid& store, LogKin kin) const;
    // Which store store.json says is, or was, where this run's is.
    std::optional<store::StoreUuid> store_of_this_place() const;

    std::string log() const { return path("log.jsonl"); }
    std::string summary() const { return path("summary.json"); }

   private:
    struct Owner {
        store::StoreUuid store{};
        std::string directory;  // absolute
        bool operator==(const Owner&) const = default;
    };

    std::string path(const char* name) const;
    void make();
    void lock();
    [[noreturn]] void refuse_locked() const;
    std::optional<Owner> read_owner() const;
    void refuse_if_of_another() const;
    bool is_of_this_place() const;
    void withdraw() noexcept;

    std::string path_;
    std::string store_directory_;
    std::vector<std::string> made_directories_;  // by this object, each before the one that it is in
    bool made_file_ = false;
    PlainFile file_;
    std::optional<Owner> owner_;
    bool adopted_ = false;
};

}  // namespace penstock::trainer
