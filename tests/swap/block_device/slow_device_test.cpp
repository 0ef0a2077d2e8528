// A device that is slow: what a process that was killed had under way lands long after its end, and until then nobody
// goes on with its store. The device is slow for that process alone: its cgroup may write so many bytes in a second.
#include "swap/store/blocking.h"
#include "swap/store/tensor_store.h"
#include "tests/child.h"
#include "tests/swap/store/exercise.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t tile_bytes = 8U << 20;
constexpr std::uint64_t bytes_per_second = 4U << 20;

bool put(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text << std::flush;
    return file.good();
}

// The number of the disk that `path` lies on, "254:0"; empty where it is on none.
std::string disk_of(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return {};
    const std::string device = fmt::format("/sys/dev/block/{}:{}", ::major(status.st_dev), ::minor(status.st_dev));
    std::error_code error;
    const fs::path found = fs::canonical(device, error);
    if (error) return {};
    std::string number;
    std::ifstream((fs::exists(found / "partition") ? found.parent_path() : found) / "dev") >> number;
    return number;
}

// A cgroup whose processes write slowly.
class SlowGroup {
   public:
    explicit SlowGroup(const std::string& disk) {
        for (const char* parent : {"/sys/fs/cgroup/blkio", "/sys/fs/cgroup"}) {
            path_ = fmt::format("{}/penstock-test-{}", parent, ::getpid());
            if (::mkdir(path_.c_str(), 0700) != 0) continue;
            works_ = put(path_ + "/blkio.throttle.write_bps_device", fmt::format("{} {}", disk, bytes_per_second)) ||
                     put(path_ + "/io.max", fmt::format("{} wbps={}", disk, bytes_per_second));
            if (works_) return;
            ::rmdir(path_.c_str());
        }
    }
    ~SlowGroup() {
        if (works_) ::rmdir(path_.c_str());
    }
    SlowGroup(const SlowGroup&) = delete;
    SlowGroup& operator=(const SlowGroup&) = delete;
    bool works() const { return works_; }
    bool join() const { return put(path_ + "/cgroup.procs", "0"); }

   private:
    std::string path_;
    bool works_ = false;
};

void fill(std::span<std::byte> memory, std::uint8_t version) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i / 512 * 7 + version);
}

// Whether all of the tile is on disk, in the slot of the second generation.
bool landed(const store::TensorStore& store, const std::string& data, std::uint8_t version) {
    const store::Extent extent = store.layout().extent({0, 0}, 1);
    const store::Descriptor file(::open(data.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    const aio::ScratchMemory found(extent.bytes), wanted(extent.bytes);
    fill(wanted.span(), version);
    const ssize_t got = ::pread(file.get(), found.data(), extent.bytes, static_cast<off_t>(extent.offset_bytes));
    return got == static_cast<ssize_t>(extent.bytes) &&
           std::equal(found.span().begin(), found.span().end(), wanted.span().begin());
}

struct OneTile final : store::TileOperation {
    void tile_done() noexcept override {}
};

// Opens the store, is slow from then on, begins to write and says so, and waits to be killed.
[[noreturn]] void begin_to_write(const std::string& path, const SlowGroup& slow, const Child::Say& say) {
    store::StoreDirectory directory(path, "test");
    aio::Io io(aio::make_uring_backend({}), {});
    const auto store = store::TensorStore::open(io, {&directory});
    settle_blocking(io, *store);  // else the tile would wait for the manifest that is written before it
    if (!slow.join()) ::_exit(2);
    const aio::ScratchMemory memory(tile_bytes);
    fill(memory.span(), 2);
    OneTile write;
    store->write(write, {0, 0}, memory.span(), aio::Urgency::demand);
    io.poll();
    say("!");
    for (;;) ::pause();
}

class SlowDevice : public ::testing::Test {
   protected:
    void SetUp() override {
        if (disk_of(scratch.path()).empty()) GTEST_SKIP() << "the directory of this test is on no disk";
        if (!slow.works()) GTEST_SKIP() << "no cgroup whose writes are held back can be made (root, blkio or io)";
        try {
            aio::make_uring_backend({});
        } catch (const std::exception& error) {
            GTEST_SKIP() << error.what();
        }
        const auto store = store::TensorStore::create(io, {&directory}, {.objects = {{"one", tile_bytes, tile_bytes}}});
        write_and_commit(*store, 1);
        { const store::StoreDirectory closed = std::move(directory); }
    }
    void write_and_commit(store::TensorStore& store, std::uint8_t version) {
        fill(memory.span(), version);
        write_blocking(io, store, {0, 0}, memory.span());
        commit_blocking(io, store, {});
    }
    // Ends when the process has begun to write and was killed.
    void kill_while_it_writes() {
        Child child([&](const Child::Say& say) { begin_to_write(path, slow, say); });
        EXPECT_EQ(child.hear(1), "!");
        child.kill();
        const int status = child.end().status;
        ASSERT_TRUE(WIFSIGNALED(status)) << status;
    }

    TemporaryDirectory scratch;
    std::string path = scratch.file("store");
    store::StoreDirectory directory{path, "test"};
    SlowGroup slow{disk_of(scratch.path())};
    aio::Io io{aio::make_thread_backend({}), {}};
    aio::ScratchMemory memory{tile_bytes};
};

TEST_F(SlowDevice, AStoreIsOpenedWhenTheLastWriteOfAKilledProcessHasLanded) {
    const std::string data = path + "/data";
    kill_while_it_writes();
    store::StoreDirectory next(path, "test");
    auto store = store::TensorStore::open(io, {&next});
    EXPECT_TRUE(landed(*store, data, 2)) << "it was opened while a write was under way to it";
    EXPECT_EQ(store->generation(), 0U);
    write_and_commit(*store, 3);
    store = nullptr;
    store = store::TensorStore::open(io, {&next});
    EXPECT_EQ(store->generation(), 1U);
    read_blocking(io, *store, {0, 0}, memory.span());
    EXPECT_TRUE(landed(*store, data, 3));
}

// What makes the test above one: the end of the process is not the end of its write.
TEST_F(SlowDevice, AProcessEndsBeforeItsWriteHasLanded) {
    kill_while_it_writes();
    const store::Descriptor file(::open((path + "/data").c_str(), O_RDONLY | O_CLOEXEC));
    if (::flock(file.get(), LOCK_SH | LOCK_NB) == 0) GTEST_SKIP() << "the kernel does not hold writes back here";
    EXPECT_EQ(errno, EWOULDBLOCK);
}

}  // namespace
}  // namespace penstock::testing
