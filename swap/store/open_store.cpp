#include "swap/store/open_store.h"

#include "aio/file.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/hashing/hash_crew.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <utility>
#include <vector>

namespace penstock::store {

OpenStore::OpenStore(const std::vector<std::string>& paths, const std::string& job, SharedRemedies remedies)
    : remedies_(std::move(remedies)) {
    PENSTOCK_CHECK(!paths.empty(), "a store in no directory");
    directories_.reserve(paths.size());
    try {
        for (const std::string& path : paths) take_directory(path, job);
    } catch (...) {
        withdraw();
        throw;
    }
}

OpenStore::~OpenStore() {
    withdraw();
}

void OpenStore::withdraw() noexcept {
    if (store_) return;
    for (StoreDirectory& directory : directories_) directory.withdraw();
}

// Where a store is whole but for a drive that is gone, what helps is what helps against its loss.
void OpenStore::take_directory(const std::string& path, const std::string& job) {
    try {
        directories_.emplace_back(path, job, *remedies_);
    } catch (const Error& error) {
        std::error_code unknown;
        const bool gone = !std::filesystem::is_directory(path, unknown);
        if (!gone || directories_.empty() || !committed()) throw;
        throw Error(error.code(), fmt::format("{} {}.", error.what(), remedies_->of_loss(directory().path())));
    }
}

OpenStore OpenStore::find(const std::vector<std::string>& paths, Sharing sharing, SharedRemedies remedies) {
    PENSTOCK_CHECK(!paths.empty(), "a store in no directory");
    OpenStore found;
    found.remedies_ = std::move(remedies);
    found.directories_.reserve(paths.size());
    for (const std::string& path : paths)
        found.directories_.push_back(StoreDirectory::find(path, sharing, *found.remedies_));
    return found;
}

// What it had ends in the order of the destructor.
OpenStore& OpenStore::operator=(OpenStore&& other) noexcept {
    withdraw();
    store_ = std::move(other.store_);
    crew_ = std::move(other.crew_);
    io_ = std::move(other.io_);
    backend_note_ = std::move(other.backend_note_);
    ready_fd_ = other.ready_fd_;
    caching_ = other.caching_;
    remedies_ = std::move(other.remedies_);
    directories_ = std::move(other.directories_);
    look_ = std::move(other.look_);
    return *this;
}

// libaio is for direct files only: a file that is opened otherwise would say less.
void OpenStore::start_io(const StoreIoOptions& options) {
    const aio::File probe(directory().fd(), StoreDirectory::lock_name,
                          directory().path() + "/" + StoreDirectory::lock_name,
                          {.mode = aio::FileMode::read_only, .caching = options.caching});
    start_io(options, aio::open_backend(probe.fd(), {}, options.backend));
}

void OpenStore::start_io(const StoreIoOptions& options, aio::ChosenBackend chosen) {
    PENSTOCK_CHECK(io_ == nullptr, "{} has an Io already", directory().path());
    caching_ = options.caching;
    backend_note_ = std::move(chosen.note);
    ready_fd_ = chosen.backend->ready_fd();
    io_ = std::make_shared<aio::Io>(std::move(chosen.backend), options.limits);
    if (options.hashing.threads > 0) crew_ = std::make_shared<HashCrew>(*io_, options.hashing);
}

void OpenStore::share_io(const OpenStore& other) {
    PENSTOCK_CHECK(io_ == nullptr && other.io_ != nullptr, "{} has an Io already, or {} has none", directory().path(),
                   other.directory().path());
    caching_ = other.caching_;
    io_ = other.io_;
    crew_ = other.crew_;
}

// The second copy first: while the first one is whole, the generation is; cut off after it, nothing is.
void OpenStore::forget_first() {
    PENSTOCK_CHECK(found().newest && found().newest->generation == 0, "{} has more than a first generation",
                   directory().path());
    const std::string path = fmt::format("{}/{}", directory().path(), manifest_file_names[0]);
    const Descriptor file(::openat(directory().fd(), manifest_file_names[0], O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0)
        throw Error(ExitCode::storage, fmt::format("{} cannot be opened: {}", path, aio::errno_text(errno)));
    const std::vector<char> zeros(static_cast<std::size_t>(status.st_size / 2));
    for (const off_t at : {status.st_size / 2, off_t{0}})
        if (::pwrite(file.get(), zeros.data(), zeros.size(), at) != static_cast<ssize_t>(zeros.size()) ||
            ::fdatasync(file.get()) != 0)
            throw Error(ExitCode::storage, fmt::format("{} cannot be overwritten: {}", path, aio::errno_text(errno)));
    look_.reset();
}

TensorStore& OpenStore::create(CreateOptions options) {
    PENSTOCK_CHECK(io_ != nullptr && store_ == nullptr, "{} has no Io, or a store already", directory().path());
    options.caching = caching_;
    options.remedies = remedies_;
    options.hashers = crew_.get();
    look_.reset();
    store_ = TensorStore::create(*io_, directories(), std::move(options));
    return *store_;
}

TensorStore& OpenStore::open(OpenOptions options) {
    PENSTOCK_CHECK(io_ != nullptr && store_ == nullptr, "{} has no Io, or a store already", directory().path());
    options.caching = caching_;
    options.remedies = remedies_;
    options.hashers = crew_.get();
    std::optional<DirectoryLook> look = std::exchange(look_, std::nullopt);
    if (look) options.found = &look->manifests;
    store_ = TensorStore::open(*io_, directories(), options);
    return *store_;
}

bool OpenStore::previous_is_right(OpenOptions options) {
    PENSTOCK_CHECK(io_ != nullptr && store_ == nullptr, "{} has no Io, or a store already", directory().path());
    options.caching = caching_;
    options.remedies = remedies_;
    return TensorStore::previous_is_right(*io_, directories(), options);
}

const DirectoryLook& OpenStore::looked() {
    if (!look_) look_ = directory().look();
    return *look_;
}

std::vector<StoreDirectory*> OpenStore::directories() {
    std::vector<StoreDirectory*> pointers;
    for (StoreDirectory& directory : directories_) pointers.push_back(&directory);
    return pointers;
}

}  // namespace penstock::store
