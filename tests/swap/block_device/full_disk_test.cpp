// A disk that is full, at every point of whatever is done to a store: real file systems with less and less room. It is
// done, or refused by name; afterwards, with room again, all is there that was reported, and what was refused can be
// done. The scenes are those of failing calls. --runs=N: that many rooms of each, drawn by the seed, instead of a few.
#include "aio/words/error.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/child.h"
#include "tests/seeds.h"
#include "tests/swap/block_device/loop_device.h"
#include "tests/swap/calls/call_scene.h"
#include "tests/swap/directory/mounts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <set>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t disk_bytes = 24U << 20;
constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t usual_rooms = 8;  // of each scene, besides those of one page and none

// The file system at `mount`; scenes work in a folder of it.
class SmallDisk {
   public:
    explicit SmallDisk(std::string mount) : mount_(std::move(mount)) { fs::create_directory(root()); }

    std::string root() const { return mount_ + "/work"; }
    std::uint64_t free_bytes() const {
        struct statvfs status {};
        if (::statvfs(mount_.c_str(), &status) != 0) throw std::runtime_error("statvfs");
        return status.f_bfree * status.f_frsize;
    }
    // Leaves `room_bytes`, or a little less where the filler's own blocks are in the way.
    void fill(std::uint64_t room_bytes) {
        const int file = ::open(filler().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        std::uint64_t bytes = 0;
        for (std::uint64_t step = disk_bytes; step >= page_bytes;) {
            const std::uint64_t free = free_bytes();
            step = std::min(step, free > room_bytes ? (free - room_bytes) / page_bytes * page_bytes : 0);
            if (step == 0) break;
            if (::fallocate(file, 0, static_cast<off_t>(bytes), static_cast<off_t>(step)) == 0)
                bytes += step;
            else
                step /= 2;
        }
        ::close(file);
    }
    void make_room() const { fs::remove(filler()); }

    // The folder holds what `image` does, and nothing else.
    void restore(const std::string& image) const {
        make_room();
        for (const auto& entry : fs::directory_iterator(root())) fs::remove_all(entry.path());
        fs::copy(image, root(), fs::copy_options::recursive);
    }

   private:
    std::string filler() const { return mount_ + "/filler"; }
    std::string mount_;
};

std::string act(const CallScene& scene, const std::string& root) {
    const CallScope scope(std::nullopt);
    scope.begin();
    try {
        const std::string wrong = scene.act(root, scope);
        return (wrong.empty() ? "D" : "S") + wrong;
    } catch (const Error& error) {
        return std::string("R") + error.what();
    } catch (const std::exception& error) {
        return std::string("S") + error.what();
    }
}

bool names_the_cause(const std::string& message, const std::string& root) {
    const auto has = [&](const char* words) { return message.find(words) != std::string::npos; };
    return has(root.c_str()) && (has("No space left") || has("bytes are missing")) && has("free");
}

struct Outcome {
    std::uint64_t room_bytes = 0;
    bool done = false;
    std::string complaint;
};

Outcome run_scene(const CallScene& scene, SmallDisk& disk, const std::string& image, std::uint64_t room_bytes) {
    const std::string root = disk.root();
    const auto complaint = [&](const std::string& words) {
        return fmt::format("{}, with room for {} bytes: {}", scene.name(), room_bytes, words);
    };
    disk.restore(image);
    disk.fill(room_bytes);
    const ChildEnd acted = in_child([&] { return act(scene, root); });
    disk.make_room();
    Outcome outcome{.room_bytes = room_bytes, .done = acted.said.starts_with('D'), .complaint = {}};
    if (acted.hung || acted.status != 0 || acted.said.empty()) {
        outcome.complaint = complaint(fmt::format("it ends with status {:#x} {}", acted.status, acted.complaint));
        return outcome;
    }
    const std::string words = acted.said.substr(1);
    const ChildEnd checked = in_child([&] {
        try {
            const std::string wrong = scene.check(root, outcome.done);
            return wrong.empty() ? std::string("right") : wrong;
        } catch (const std::exception& error) {
            return std::string(error.what());
        }
    });
    if (checked.said != "right") {
        outcome.complaint = complaint(fmt::format("afterwards: {}; it had said: {}", checked.said, words));
    } else if (acted.said.starts_with('S')) {
        outcome.complaint = complaint(words);
    } else if (!outcome.done && !names_the_cause(words, root)) {
        outcome.complaint = complaint("refused without the place or the cause: " + words);
    }
    return outcome;
}

// From none to what the scene takes without a filler.
std::set<std::uint64_t> rooms_of(std::uint64_t need_bytes, std::uint64_t seed) {
    std::set<std::uint64_t> rooms{0, page_bytes, need_bytes - need_bytes % page_bytes};
    std::mt19937_64 random(seed);
    const std::uint64_t pages = need_bytes / page_bytes + 1;
    for (std::uint64_t i = 0; i < seed_options().runs.value_or(usual_rooms); ++i) {
        const std::uint64_t most = i % 2 == 0 ? pages : std::min<std::uint64_t>(pages, 16);  // small ones, too
        rooms.insert(random() % most * page_bytes);
    }
    return rooms;
}

// What is wrong, in lines.
std::string run_all(SmallDisk& disk, std::uint64_t seed, const std::string& scratch) {
    std::string wrong;
    std::uint64_t done = 0, refused = 0;
    for (const auto& scene : all_scenes()) {
        if (scene->is_refused_anyhow()) continue;
        const std::string image = scratch + "/image";
        fs::remove_all(image);
        fs::create_directory(image);
        disk.restore(image);
        in_child([&] { return scene->prepare(disk.root()), std::string("made"); });
        fs::copy(disk.root(), image, fs::copy_options::recursive);
        const std::uint64_t before = disk.free_bytes();
        const Outcome free = run_scene(*scene, disk, image, disk_bytes);
        if (!free.done) wrong += free.complaint + "\n";
        const std::uint64_t after = disk.free_bytes();
        const std::uint64_t need = before > after ? before - after : 0;
        for (const std::uint64_t room : rooms_of(need, seed)) {
            const Outcome outcome = run_scene(*scene, disk, image, room);
            ++(outcome.done ? done : refused);
            if (!outcome.complaint.empty()) wrong += outcome.complaint + "\n";
        }
    }
    const auto lines = std::count(wrong.begin(), wrong.end(), '\n');
    std::cout << fmt::format("RESULT full disk: {} done, {} refused, {} wrong", done, refused, lines) << std::endl;
    if (refused < 20 || done < 20) wrong += fmt::format("only {} were refused and {} done", refused, done);
    return wrong;
}

// `mounts` puts a file system of disk_bytes at its argument.
void on_a_small_disk(const std::function<bool(const std::string&)>& mounts) {
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    const std::string mount = scratch.file("mount");
    fs::create_directory(mount);
    const std::uint64_t seed = first_seed();
    const MountOutcome outcome = run_with_mounts([&] { return mounts(mount); },
                                                 [&] {
                                                     SmallDisk disk(mount);
                                                     return run_all(disk, seed, scratch.path());
                                                 });
    if (!outcome.allowed) GTEST_SKIP() << "file systems of a test's own cannot be mounted here";
    EXPECT_EQ(outcome.text, "") << replay(seed);
}

TEST(FullDisk, OfMemoryIsNamedAndNothingIsLost) {
    on_a_small_disk([](const std::string& mount) { return mount_tmpfs(mount, disk_bytes); });
}

TEST(FullDisk, OfExt4IsNamedAndNothingIsLost) {
    if (!can_make(FileSystem::ext4)) GTEST_SKIP() << "mkfs.ext4 is not installed";
    std::unique_ptr<MountedLoop> loop;
    on_a_small_disk([&](const std::string& mount) {
        const std::string image = mount + ".image";
        std::ofstream(image).put('\0');
        fs::resize_file(image, disk_bytes);
        try {
            make_file_system(FileSystem::ext4, image);
            loop = std::make_unique<MountedLoop>(image, FileSystem::ext4, mount);
        } catch (const std::exception& error) {
            std::cout << error.what() << std::endl;
        }
        return loop != nullptr;
    });
}

}  // namespace
}  // namespace penstock::testing
