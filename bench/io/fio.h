// fio, the yardstick: the command for a job, and what its JSON says.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::bench {

class Interruption;

enum class FioMemory : std::uint8_t {
    usual,       // fio's default: malloc, pages of 4 KiB
    huge_pages,  // mmaphuge: reserved pages of 2 MiB (vm.nr_hugepages)
};
const char* to_string(FioMemory memory) noexcept;

struct FioJob {
    std::string name;
    std::string pattern;  // fio's --rw: read, write, randread, randwrite, rw
    std::uint32_t block_bytes = 1U << 20;
    std::uint32_t depth = 8;  // blocks in flight
    std::optional<std::uint64_t> rate_bytes_per_second;
};

// Jobs that run at once on one file, which exists and is as long as they say.
struct FioCommand {
    std::string path;
    std::uint64_t bytes = 0;
    std::optional<double> seconds;  // none: each job goes over the file once
    FioMemory memory = FioMemory::usual;
    // Buffers and file registered with the ring: asked for where our own side has registered its own.
    bool registered_memory = false;
    bool registered_file = false;
    bool latencies = false;  // without, fio asks no clock for each block, which is cheaper
    std::vector<FioJob> jobs;
};

// The program and its arguments.
std::vector<std::string> fio_arguments(const FioCommand& command);
std::string shown(const std::vector<std::string>& arguments);  // one line, as for a shell

struct FioFigures {
    std::string name;
    std::uint64_t read_bytes = 0;
    std::uint64_t write_bytes = 0;
    double seconds = 0;      // of the longer direction
    double cpu_seconds = 0;  // user and system, as fio counts: its job's thread, without the kernel's own workers
    // Of the reads (of the writes when there are none), from submission to completion; 0 without latencies.
    std::chrono::nanoseconds p50{0}, p99{0}, p999{0};
};

// One element per job, in the command's order. Throws Error (storage) when a job failed, (internal) when the text is
// not what fio 3 writes.
std::vector<FioFigures> parse_fio(std::string_view json);

// Runs it to its end. Throws Error: storage (it failed; its own words), interrupted.
std::vector<FioFigures> run_fio(const FioCommand& command, Interruption& stop);

// "fio-3.33"; nothing when there is no fio on the PATH.
std::optional<std::string> fio_version(Interruption& stop);

}  // namespace penstock::bench
