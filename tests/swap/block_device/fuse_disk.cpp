#include "tests/swap/block_device/fuse_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace penstock::testing {
namespace {

constexpr std::uint32_t max_write_bytes = 1U << 20;
constexpr std::size_t max_events = 1U << 16;
constexpr std::uint64_t log_bytes = 512U << 20;  // of address space; memory is used as far as it is written

[[noreturn]] void fail(const std::string& what, int errno_value) {
    throw std::runtime_error(fmt::format("no programmable disk: {}: {}", what, std::strerror(errno_value)));
}

void* map(std::uint64_t bytes, int flags, int fd) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | flags, fd, 0);
    if (memory == MAP_FAILED) fail("mmap", errno);
    return memory;
}

struct Record {
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;  // 0: a flush
    std::uint64_t at = 0;     // of the bytes before in the log; those after follow
};

}  // namespace

// What test and server both see.
struct FuseDisk::Shared {
    std::atomic<DiskHealth> health;
    std::atomic<std::size_t> event_count;
    std::uint64_t log_used = 0;
    std::array<Record, max_events> records;
    std::array<std::byte, log_bytes> log;
};

// The other end of the kernel's FUSE protocol (linux/fuse.h) for a file system that is one file.
class FuseDisk::Server {
   public:
    Server(int fd, std::span<std::byte> image, Shared& shared) : fd_(fd), image_(image), shared_(shared) {}

    [[noreturn]] void run() {
        while (true) {
            const ssize_t got = ::read(fd_, request_.data(), request_.size());
            if (got < 0 && (errno == EINTR || errno == ENOENT)) continue;  // ENOENT: it was interrupted
            if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) ::_exit(0);
            std::memcpy(&header_, request_.data(), sizeof header_);
            serve();
        }
    }

   private:
    template <typename Body>
    Body body() const {
        Body body{};
        std::memcpy(&body, request_.data() + sizeof header_, sizeof body);
        return body;
    }
    void reply(std::span<const std::byte> bytes) {
        fuse_out_header header{
            .len = static_cast<std::uint32_t>(sizeof header + bytes.size()), .error = 0, .unique = header_.unique};
        const std::array<iovec, 2> parts{iovec{&header, sizeof header},
                                         iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}};
        static_cast<void>(!::writev(fd_, parts.data(), bytes.empty() ? 1 : 2));
    }
    template <typename Body>
    void reply_with(const Body& body) {
        reply(std::as_bytes(std::span(&body, 1)));
    }
    void refuse(int errno_value) {
        const fuse_out_header header{.len = sizeof header, .error = -errno_value, .unique = header_.unique};
        static_cast<void>(!::write(fd_, &header, sizeof header));
    }

    void serve();
    void begin();
    void attributes();
    void read();
    void write();
    void flush();
    void log(std::uint64_t offset_bytes, std::span<const std::byte> after);
    bool within(std::uint64_t offset_bytes, std::uint64_t bytes) const {
        return offset_bytes <= image_.size() && bytes <= image_.size() - offset_bytes;
    }

    int fd_;
    std::span<std::byte> image_;
    Shared& shared_;
    fuse_in_header header_{};
    std::vector<std::byte> request_{max_write_bytes + (64U << 10)};
};

void FuseDisk::Server::serve() {
    switch (header_.opcode) {
        case FUSE_INIT:
            return begin();
        case FUSE_GETATTR:
        case FUSE_SETATTR:
            return attributes();
        case FUSE_OPEN:
            return reply_with(fuse_open_out{.fh = 1, .open_flags = FOPEN_DIRECT_IO});
        case FUSE_READ:
            return read();
        case FUSE_WRITE:
            return write();
        case FUSE_FSYNC:
            return flush();
        case FUSE_STATFS:
            return reply_with(fuse_statfs_out{.st = {.bsize = 4096, .namelen = 255, .frsize = 4096}});
        case FUSE_FLUSH:
        case FUSE_RELEASE:
        case FUSE_DESTROY:
            return reply({});
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT:
            return;  // want no answer
        default:
            return refuse(ENOSYS);
    }
}

void FuseDisk::Server::begin() {
    const auto asked = body<fuse_init_in>();
    fuse_init_out out{};
    out.major = FUSE_KERNEL_VERSION;
    out.minor = std::min<std::uint32_t>(FUSE_KERNEL_MINOR_VERSION, asked.minor);
    out.max_readahead = asked.max_readahead;
    out.flags = asked.flags & (FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO);
    out.max_background = 64;
    out.congestion_threshold = 64;
    out.max_write = max_write_bytes;
    out.max_pages = max_write_bytes / 4096;
    out.time_gran = 1;
    reply_with(out);
}

void FuseDisk::Server::attributes() {
    fuse_attr_out out{};
    out.attr_valid = 1U << 30;
    out.attr.ino = FUSE_ROOT_ID;
    out.attr.size = image_.size();
    out.attr.blocks = image_.size() / 512;
    out.attr.mode = S_IFREG | 0600;
    out.attr.nlink = 1;
    out.attr.blksize = 4096;
    reply_with(out);
}

void FuseDisk::Server::read() {
    const auto asked = body<fuse_read_in>();
    if (shared_.health == DiskHealth::all_fail || !within(asked.offset, asked.size)) return refuse(EIO);
    reply(image_.subspan(asked.offset, asked.size));
}

void FuseDisk::Server::write() {
    const auto asked = body<fuse_write_in>();
    const DiskHealth health = shared_.health;
    const bool fails = health == DiskHealth::writes_fail || health == DiskHealth::all_fail;
    if (fails || !within(asked.offset, asked.size)) return refuse(EIO);
    const std::span<const std::byte> bytes(request_.data() + sizeof header_ + sizeof asked, asked.size);
    log(asked.offset, bytes);
    std::memcpy(image_.data() + asked.offset, bytes.data(), bytes.size());
    reply_with(fuse_write_out{.size = asked.size});
}

void FuseDisk::Server::flush() {
    if (shared_.health != DiskHealth::sound) return refuse(EIO);
    log(0, {});
    reply({});
}

void FuseDisk::Server::log(std::uint64_t offset_bytes, std::span<const std::byte> after) {
    const std::size_t index = shared_.event_count;
    const std::uint64_t at = shared_.log_used;
    if (index == max_events || at + 2 * after.size() > log_bytes) ::_exit(1);  // the test sees its disk die
    const auto before = image_.subspan(offset_bytes, after.size());
    const auto place = shared_.log.begin() + static_cast<std::ptrdiff_t>(at);
    std::copy(after.begin(), after.end(), std::copy(before.begin(), before.end(), place));
    shared_.records[index] = {.offset_bytes = offset_bytes, .bytes = after.size(), .at = at};
    shared_.log_used = at + 2 * after.size();
    shared_.event_count = index + 1;
}

FuseDisk::FuseDisk(const std::string& path, std::uint64_t bytes)
    : path_(path), memory_(::memfd_create("penstock_disk", MFD_CLOEXEC)) {
    if (!memory_ || ::ftruncate(memory_.get(), static_cast<off_t>(bytes)) != 0) fail("memfd_create", errno);
    const store::Descriptor fuse(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!fuse) fail("/dev/fuse", errno);
    const store::Descriptor place(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!place) fail(path, errno);
    const std::string options =
        fmt::format("fd={},rootmode=100000,user_id=0,group_id=0,max_read={}", fuse.get(), max_write_bytes);
    if (::mount("penstock", path.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) fail("mount", errno);
    image_ = {static_cast<std::byte*>(map(bytes, 0, memory_.get())), bytes};
    shared_ = static_cast<Shared*>(map(sizeof(Shared), MAP_ANONYMOUS, -1));
    // Not in the test's mount namespace: the last process there to end unmounts what is on the disk, and waits for the
    // server meanwhile.
    const store::Descriptor outside(::open(fmt::format("/proc/{}/ns/mnt", ::getppid()).c_str(), O_RDONLY | O_CLOEXEC));
    if (!outside) fail("the mount namespace of the parent process", errno);
    const pid_t parent = ::getpid();
    server_ = ::fork();
    if (server_ < 0) fail("fork", errno);
    if (server_ > 0) return;
    // A sanitizer's thread shares the working directory, and setns() wants it for itself.
    const bool set =
        ::unshare(CLONE_FS) == 0 && ::setns(outside.get(), CLONE_NEWNS) == 0 && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    if (!set || ::getppid() != parent) ::_exit(1);
    Server(fuse.get(), image_, *shared_).run();
}

FuseDisk::~FuseDisk() {
    ::umount2(path_.c_str(), MNT_DETACH);
    ::kill(server_, SIGKILL);
    ::waitpid(server_, nullptr, 0);
    ::munmap(image_.data(), image_.size());
    ::munmap(shared_, sizeof(Shared));
}

std::string FuseDisk::image_path() const {
    return fmt::format("/proc/{}/fd/{}", ::getpid(), memory_.get());
}

void FuseDisk::set_health(DiskHealth health) {
    shared_->health = health;
}

std::size_t FuseDisk::event_count() const {
    return shared_->event_count;
}

std::vector<DiskEvent> FuseDisk::log() const {
    std::vector<DiskEvent> events;
    const std::span<const std::byte> bytes(shared_->log);
    for (const Record& record : std::span(shared_->records).first(event_count())) {
        events.push_back({.offset_bytes = record.offset_bytes,
                          .before = bytes.subspan(record.at, record.bytes),
                          .after = bytes.subspan(record.at + record.bytes, record.bytes)});
    }
    return events;
}

void FuseDisk::clear_log() {
    shared_->log_used = 0;
    shared_->event_count = 0;
}

std::span<std::byte> FuseDisk::image() const {
    return image_;
}

}  // namespace penstock::testing
