// What the cases of `penstock bench io` share: options, the file, how fio may be run, and rounds.
#pragma once

#include "aio/backend.h"
#include "aio/words/byte_count.h"
#include "bench/harness/bench_file.h"
#include "bench/harness/interruption.h"
#include "bench/harness/report.h"
#include "bench/io/fio.h"
#include "zero_infinity/measure/io_rig.h"
#include "zero_infinity/measure/stopwatch.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace penstock::bench {

struct IoPoint {
    std::uint32_t block_bytes = 1U << 20;
    std::uint32_t depth = 8;  // blocks in flight
};
std::string to_string(const IoPoint& point);  // "1MiB x 8"
// "1MiBx8". Throws Error (usage).
IoPoint parse_point(const std::string& text);

struct IoBenchOptions {
    std::string directory;
    std::uint64_t bytes = 2ULL << 30;  // of the file; made a multiple of 16 MiB
    unsigned rounds = 5;
    std::optional<double> seconds;  // of one contender in one round; 2 unless given
    std::vector<std::string> cases;
    std::vector<IoPoint> points;  // empty: each case's own
    std::optional<aio::BackendKind> backend;
    zero::RingRegistration registration = zero::RingRegistration::wanted;
    bool reserve_huge_pages = false;
    bool tune = false;
    bool sustained = false;
    std::optional<std::uint64_t> sustained_bytes;
    double reader_bytes_per_second = 200e6;  // of the demand reads beside write-back

    double round_seconds() const noexcept { return seconds.value_or(2); }
};

struct IoBench {
    const IoBenchOptions& options;
    Interruption& stop;
    Report& report;
    const BenchFile& file;
    std::vector<FioMemory> fio;  // what can be compared with; the first is the yardstick
    std::vector<std::string> noted;

    // Each line once, however many rigs say it.
    void note(const std::vector<std::string>& lines);
    // With what is the same for each case.
    zero::RigOptions rig(zero::RigOptions of_case) const;
};

// One contender's rounds.
struct Series {
    std::string who;
    std::vector<zero::Moved> rounds;
};

// Whose turn it is. The order begins with the next contender every second round and is reversed in between, so that
// nobody always comes first nor always follows the same other: what a predecessor leaves behind in the device or the
// host's cache hits all alike.
std::size_t contender(std::size_t round, std::size_t turn, std::size_t count);

// Calls measure(i) for each of `count` contenders in each round, in that order. Progress on standard error.
void run_rounds(IoBench& bench, const std::string& what, std::size_t count,
                const std::function<void(std::size_t)>& measure);

// The series of one fio job in rounds: a command, and what it moved.
zero::Moved moved_by_fio(IoBench& bench, const FioCommand& command);
void say_progress(const std::string& line);

}  // namespace penstock::bench
