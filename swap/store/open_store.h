// A store with all that it stands on: its directories, locked; an Io on their devices; the store in them.
#pragma once

#include "aio/backend.h"
#include "aio/io.h"
#include "swap/directory/store_directory.h"
#include "swap/hashing/tile_hashers.h"
#include "swap/store/tensor_store.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::store {

class HashCrew;  // swap/hashing/hash_crew.h: the implementation's

struct StoreIoOptions {
    aio::Caching caching = aio::Caching::direct;   // of the store's files
    std::optional<aio::BackendKind> backend = {};  // none: the fastest that works
    aio::IoLimits limits = {};
    Hashing hashing = {};  // of the tiles of all stores on that Io
};

// Built step by step, because callers look or work between the steps: locked, then with an Io, then open; destroyed in
// reverse. Owned by the thread that owns the Io.
//
//   OpenStore open({"/nvme/run1"}, "my job");
//   open.start_io({});
//   const std::vector<ObjectSpec> objects = {{"weights", 1 << 30, 4 << 20}};
//   TensorStore& store = open.committed() ? open.open({.objects = objects}) : open.create({.objects = objects});
//
// What is refused leaves nothing behind: directories and locks that it made go with it, unless a store came of them.
class OpenStore {
   public:
    // Locks the directories, one per device, the first of which holds the manifests. Throws Error as StoreDirectory.
    // `remedies` are what all its errors end with.
    OpenStore(const std::vector<std::string>& paths, const std::string& job,
              SharedRemedies remedies = library_remedies());
    // Those of a store that is there, whichever job's: StoreDirectory::find().
    static OpenStore find(const std::vector<std::string>& paths, Sharing sharing,
                          SharedRemedies remedies = library_remedies());
    ~OpenStore();
    OpenStore(OpenStore&& other) noexcept = default;
    OpenStore& operator=(OpenStore&& other) noexcept;

    StoreDirectory& directory() { return directories_.front(); }
    const StoreDirectory& directory() const { return directories_.front(); }
    // What is in the first directory, looked at with the first question: the manifests are read once, for open() takes
    // what was found. Throws Error as StoreDirectory::look().
    bool committed() { return looked().content == DirectoryContent::committed; }
    // A store that got no further than its first generation is none any more, durably: create() may come. REQUIRES:
    // found().newest is generation 0; not open.
    void forget_first();
    // What they say; nothing where one is missing: open() says so. Valid until open() or create().
    const Recovery& found() { return looked().manifests; }

    // An Io of its own, over a backend that was tried on a file opened as the store's are, or over the one given.
    // Throws Error as open_backend(). REQUIRES: it has none yet.
    void start_io(const StoreIoOptions& options);
    void start_io(const StoreIoOptions& options, aio::ChosenBackend chosen);
    // That of another store, which it keeps alive. REQUIRES: it has none yet.
    void share_io(const OpenStore& other);
    aio::Io& io() const { return *io_; }
    int ready_fd() const noexcept { return ready_fd_; }  // Backend::ready_fd(), of an Io of its own
    const std::string& backend_note() const noexcept { return backend_note_; }  // ChosenBackend::note
    aio::Caching caching() const noexcept { return caching_; }                  // of start_io()
    std::vector<StoreDirectory*> directories();                                 // which are this object's

    // As those of TensorStore, with the caching of start_io(). A program that goes on with what it finds says in
    // OpenOptions::objects what it means to find. REQUIRES: it has an Io and no store yet.
    TensorStore& create(CreateOptions options);
    TensorStore& open(OpenOptions options = {});
    // TensorStore::previous_is_right(). REQUIRES: as open().
    bool previous_is_right(OpenOptions options);
    TensorStore& store() const { return *store_; }

   private:
    OpenStore() = default;
    void take_directory(const std::string& path, const std::string& job);
    void withdraw() noexcept;
    const DirectoryLook& looked();

    std::vector<StoreDirectory> directories_;
    std::optional<DirectoryLook> look_;  // until something is made of it
    aio::Caching caching_ = aio::Caching::direct;
    SharedRemedies remedies_;
    int ready_fd_ = -1;
    std::string backend_note_;
    std::shared_ptr<aio::Io> io_;
    std::shared_ptr<HashCrew> crew_;  // null: there is none
    std::unique_ptr<TensorStore> store_;
};

}  // namespace penstock::store
