#include "tests/swap/block_device/sharing_store.h"

#include "swap/blocks/block_clone.h"
#include "tests/swap/directory/mounts.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t image_bytes = 320ULL << 20;  // mkfs.xfs makes no smaller ones

}  // namespace

SharingStore::SharingStore(std::string root, std::vector<store::ObjectSpec> objects)
    : root_(std::move(root)), directory_(root_ + "/store", "test") {
    if (directory_.content() == store::DirectoryContent::committed) {
        store_ = store::TensorStore::open(io_, {&directory_});
    } else {
        store_ = store::TensorStore::create(io_, {&directory_}, {.objects = std::move(objects)});
    }
    moving_.emplace(io_, *store_, 1);
    fs::create_directories(folder());
}

std::uint64_t SharingStore::room_bytes() const {
    return fs::file_size(data()) - store_->layout().device_bytes(0);
}

std::string SharingStore::go_on(int rounds) {
    for (int i = 0; i < rounds; ++i)
        if (const auto error = moving_->round()) return error->message;
    return {};
}

std::string SharingStore::keep(const std::string& name, store::Blocks wanted, store::Blocks expected) {
    store::StoreDirectory target(path_of(name), "test");
    auto copy = create_snapshot(io_, *store_, target, aio::Caching::direct, wanted);
    if (copy->shares_blocks() != (expected == store::Blocks::shared)) return "whose blocks are they?";
    const aio::ScratchMemory memory(2 * longest_extent);
    const store::SnapshotCopy copying(*store_, std::move(copy), memory.span());
    while (!copying.finished()) io_.wait(std::chrono::seconds(1));
    if (copying.error()) return copying.error()->message;
    const bool copied = copying.copied_bytes() > 0;
    return copied == (expected == store::Blocks::own) ? "" : "what was copied is told wrong";
}

void SharingStore::leave_unfinished(const std::string& name) {
    store::StoreDirectory target(path_of(name), "test");
    create_snapshot(io_, *store_, target, aio::Caching::direct, store::Blocks::shared);
}

std::string SharingStore::snapshot_difference(const std::string& name, const TileSeeds& seeds,
                                              const store::ClientState& client) {
    const auto directory = open_directory(name);
    const auto kept = store::TensorStore::open(io_, {directory.get()}, {.verify = store::VerifyScope::all});
    if (kept->client() != client) return name + ": the client's state";
    const std::string wrong = difference(io_, *kept, seeds);
    return wrong.empty() ? wrong : name + ": " + wrong;
}

std::unique_ptr<store::StoreDirectory> SharingStore::open_directory(const std::string& name) const {
    return std::make_unique<store::StoreDirectory>(store::StoreDirectory::find(path_of(name), store::Sharing::shared));
}

std::uint64_t shared_bytes(const std::string& path) {
    const aio::File file(AT_FDCWD, path, path, {.mode = aio::FileMode::read_only, .caching = aio::Caching::buffered});
    std::uint64_t bytes = 0;
    const bool known = store::for_shared_ranges(file, file.bytes(),
                                                [&](std::uint64_t begin, std::uint64_t end) { bytes += end - begin; });
    if (!known) throw std::runtime_error(path + ": the file system says nothing of its blocks");
    return bytes;
}

void fill_disk(const std::string& mount) {
    const int file = ::open((mount + "/filler").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    off_t bytes = 0;
    for (off_t step = image_bytes; step >= 4096;) {
        if (::fallocate(file, 0, bytes, step) == 0)
            bytes += step;
        else
            step /= 2;
    }
    ::close(file);
}

void OnXfs::on_xfs(const std::function<std::string(const std::string& mount)>& body) {
    if (!can_make(FileSystem::xfs)) GTEST_SKIP() << "mkfs.xfs is not installed";
    std::ofstream(image_).put('\0');
    fs::resize_file(image_, image_bytes);
    make_file_system(FileSystem::xfs, image_);
    fs::create_directory(mount_);
    const auto prepare = [&] {
        try {
            loop_ = std::make_unique<MountedLoop>(image_, FileSystem::xfs, mount_);
        } catch (const std::exception&) {
            return false;
        }
        return true;
    };
    const MountOutcome outcome = run_with_mounts(prepare, [&] { return body(mount_); });
    if (!outcome.allowed) GTEST_SKIP() << "an XFS on a loop device cannot be mounted here";
    EXPECT_EQ(outcome.text, "");
}

void OnXfs::cut_power() {
    constexpr unsigned long shutdown_request = 0x8004587DUL;  // of XFS
    std::uint32_t without_log = 2;
    const int directory = ::open(mount_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done = ::ioctl(directory, shutdown_request, &without_log) == 0;
    ::close(directory);
    if (!done) throw std::runtime_error("the power cannot be cut");
    loop_.reset();
    loop_ = std::make_unique<MountedLoop>(image_, FileSystem::xfs, mount_);
}

}  // namespace penstock::testing
