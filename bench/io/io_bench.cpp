#include "bench/io/io_bench.h"

#include "aio/words/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>

namespace penstock::bench {

std::string to_string(const IoPoint& point) {
    return fmt::format("{} x {}", bytes_text(point.block_bytes), point.depth);
}

IoPoint parse_point(const std::string& text) {
    const std::size_t times = text.rfind('x');
    const auto block = parse_bytes(std::string_view(text).substr(0, times));
    std::uint32_t depth = 0;
    if (times != std::string::npos) {
        const char* const end = text.data() + text.size();
        if (std::from_chars(text.data() + times + 1, end, depth).ptr != end) depth = 0;
    }
    const bool power = block && (*block & (*block - 1)) == 0;
    if (!power || *block < 4096 || *block > 16U << 20 || depth < 1 || depth > 256) {
        throw Error(ExitCode::usage,
                    fmt::format("--points {}: expected a block and a depth such as 1MiBx8; the block a power of two "
                                "from 4KiB to 16MiB, the depth from 1 to 256",
                                text));
    }
    return {.block_bytes = static_cast<std::uint32_t>(*block), .depth = depth};
}

void IoBench::note(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
        if (std::find(noted.begin(), noted.end(), line) != noted.end()) continue;
        noted.push_back(line);
        report.note(line);
    }
}

void say_progress(const std::string& line) {
    std::fprintf(stderr, "penstock: %s\n", line.c_str());
}

std::size_t contender(std::size_t round, std::size_t turn, std::size_t count) {
    const std::size_t place = round % 2 == 0 ? turn : count - 1 - turn;
    return (place + round / 2) % count;
}

zero::RigOptions IoBench::rig(zero::RigOptions of_case) const {
    of_case.backend = options.backend;
    of_case.registration = options.registration;
    of_case.setting = "--size";
    of_case.asking = stop.asking();
    return of_case;
}

void run_rounds(IoBench& bench, const std::string& what, std::size_t count,
                const std::function<void(std::size_t)>& measure) {
    for (std::size_t round = 0; round < bench.options.rounds; ++round) {
        say_progress(fmt::format("{}: round {} of {}", what, round + 1, bench.options.rounds));
        for (std::size_t turn = 0; turn < count; ++turn) {
            bench.stop.check();
            measure(contender(round, turn, count));
        }
    }
}

zero::Moved moved_by_fio(IoBench& bench, const FioCommand& command) {
    zero::Moved moved;
    for (const FioFigures& job : run_fio(command, bench.stop)) {
        moved.bytes += job.read_bytes + job.write_bytes;
        moved.seconds = std::max(moved.seconds, job.seconds);
        moved.cpu_seconds += job.cpu_seconds;
    }
    return moved;
}

}  // namespace penstock::bench
