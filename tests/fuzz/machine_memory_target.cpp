// MachineMemory::read() on a machine of hostile files: ends, and says what is tight.
#include "aio/words/check.h"
#include "pinned_pool/budget.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/fuzz/sections.h"

#include <array>
#include <filesystem>
#include <fstream>

namespace penstock::fuzz {
namespace {

constexpr std::array paths = {"/proc/meminfo",
                              "/proc/self/cgroup",
                              "/proc/self/limits",
                              "/proc/self/status",
                              "/sys/fs/cgroup/memory.max",
                              "/sys/fs/cgroup/memory.current",
                              "/sys/fs/cgroup/memory.stat",
                              "/sys/fs/cgroup/user/memory.max",
                              "/sys/fs/cgroup/user/memory.current",
                              "/sys/fs/cgroup/user/memory.stat",
                              "/sys/fs/cgroup/memory/user/memory.limit_in_bytes",
                              "/sys/fs/cgroup/memory/user/memory.usage_in_bytes",
                              "/sys/fs/cgroup/memory/user/memory.stat"};
constexpr std::size_t user_namespace = paths.size();  // the tag of a link's target

void run(std::span<const std::byte> input) {
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    const std::string root = scratch.file("");
    const auto prepared = [&root](const std::string& path) {
        std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
        return root + path;
    };
    for (const Section& section : split(input)) {
        const std::string text = text_of(section.bytes);
        if (section.tag < paths.size()) {
            std::ofstream(prepared(paths[section.tag]), std::ios::binary) << text;
        } else if (section.tag == user_namespace) {
            std::error_code ignored;
            std::filesystem::create_symlink(text, prepared("/proc/self/ns/user"), ignored);
        }
    }
    const pool::MachineMemory memory = pool::MachineMemory::read(root);
    PENSTOCK_CHECK(!memory.limited_by.empty(), "{} bytes are limited by nothing", memory.available_bytes);
}

void mutate_section(Section& section, Random&, const RawMutation& raw) {
    raw(section.bytes);
}

void mutate(Bytes& bytes, Random& random, const RawMutation& raw) {
    mutate_sections(bytes, random, raw, user_namespace + 1, mutate_section);
}

std::vector<Bytes> seeds() {
    const auto section = [](std::uint8_t tag, std::string_view text) { return Section{tag, bytes_of(text)}; };
    const std::vector<Section> plain = {
        section(0, "MemTotal: 1000 kB\nMemAvailable:    800 kB\n"),
        section(2, "Limit  Soft Limit\nMax locked memory         8388608   9999999  bytes\n"),
        section(3, "VmLck:\t 12 kB\nVmPin:\t 4 kB\nCapEff:\t0000000000004000\n"), section(13, "user:[4026531837]")};
    std::vector<Section> version_2 = plain;
    version_2.push_back(section(1, "0::/user/job\n"));
    version_2.push_back(section(4, "max\n"));
    version_2.push_back(section(7, "500000\n"));
    version_2.push_back(section(8, "400000\n"));
    version_2.push_back(section(9, "anon 1\ninactive_file 150000\n"));
    std::vector<Section> version_1 = plain;
    version_1.push_back(section(1, "11:cpu,memory:/user\n1:name=systemd:/\n"));
    version_1.push_back(section(10, "500000\n"));
    version_1.push_back(section(11, "18446744073709551615\n"));
    version_1.push_back(section(12, "total_inactive_file 9\n"));
    return {join(plain), join(version_2), join(version_1)};
}

}  // namespace

const FuzzTarget machine_memory_target = {.name = "machine_memory", .run = run, .mutate = mutate, .seeds = seeds};

}  // namespace penstock::fuzz
