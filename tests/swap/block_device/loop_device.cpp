#include "tests/swap/block_device/loop_device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/loop.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

extern char** environ;  // NOLINT: of the C library

namespace penstock::testing {
namespace {

constexpr int tries = 100;  // another process may take the free device first

[[noreturn]] void fail(const std::string& what, int errno_value) {
    throw std::runtime_error(fmt::format("no loop device: {}: {}", what, std::strerror(errno_value)));
}

std::string program(FileSystem kind) {
    return fmt::format("/usr/sbin/mkfs.{}", to_string(kind));
}

store::Descriptor open_node(int index) {
    const std::string node = fmt::format("/dev/loop{}", index);
    return store::Descriptor(::open(node.c_str(), O_RDWR | O_CLOEXEC));
}

// A free loop device that shows `file`; its number goes to `index`.
store::Descriptor attach(const std::string& file, int& index) {
    const store::Descriptor control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    if (!control) fail("/dev/loop-control", errno);
    const store::Descriptor backing(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    if (!backing) fail(file, errno);
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(backing.get());
    config.block_size = 512;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    for (int i = 0; i < tries; ++i) {
        index = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
        if (index < 0) fail("LOOP_CTL_GET_FREE", errno);
        store::Descriptor loop = open_node(index);
        if (!loop) fail(fmt::format("/dev/loop{}", index), errno);
        if (::ioctl(loop.get(), LOOP_CONFIGURE, &config) == 0) return loop;
        if (errno != EBUSY) fail("LOOP_CONFIGURE", errno);
    }
    fail("LOOP_CONFIGURE", EBUSY);
}

}  // namespace

const char* to_string(FileSystem kind) {
    return kind == FileSystem::ext4 ? "ext4" : "xfs";
}

bool can_make(FileSystem kind) {
    return ::access(program(kind).c_str(), X_OK) == 0;
}

void make_file_system(FileSystem kind, const std::string& image) {
    std::vector<std::string> words = {program(kind), "-q", kind == FileSystem::ext4 ? "-F" : "-f", image};
    // ext4 takes for granted that its superblock (1024 bytes) is written as a whole: without checksums a torn one does
    // no harm, so that sectors of 512 bytes may be lost one by one here.
    if (kind == FileSystem::ext4)
        words.insert(words.begin() + 1, {"-b", "4096", "-J", "size=4", "-m", "0", "-O", "^metadata_csum"});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = -1;
    int status = 0;
    if (const int error = ::posix_spawn(&child, arguments[0], nullptr, nullptr, arguments.data(), environ); error != 0)
        fail(words[0], error);
    ::waitpid(child, &status, 0);
    if (status != 0) throw std::runtime_error(fmt::format("{} ended with status {}", words[0], status));
}

MountedLoop::MountedLoop(const std::string& file, FileSystem kind, const std::string& mount_point)
    : mount_point_(mount_point) {
    int index = -1;
    const store::Descriptor loop = attach(file, index);
    const std::string node = fmt::format("/dev/loop{}", index);
    if (::mount(node.c_str(), mount_point.c_str(), to_string(kind), MS_NOATIME | MS_NOSUID | MS_NODEV, nullptr) != 0)
        throw std::runtime_error(fmt::format("{} could not be mounted: {}", to_string(kind), std::strerror(errno)));
}

MountedLoop::~MountedLoop() {
    if (::umount2(mount_point_.c_str(), 0) != 0) ::umount2(mount_point_.c_str(), MNT_DETACH);
}

}  // namespace penstock::testing
