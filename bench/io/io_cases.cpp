#include "bench/io/io_cases.h"

#include "aio/words/check.h"
#include "bench/io/comparison.h"
#include "zero_infinity/measure/block_source.h"
#include "zero_infinity/measure/io_rig.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace penstock::bench {
namespace {

using Work = zero::BlockWork;
using Access = zero::BlockAccess;

struct BlockCase {
    std::string name;
    Work work;
    Access access;
    const char* pattern;  // fio's
    bool fresh;           // a new file in each round
    Promise promise;
    std::vector<IoPoint> points;
};

constexpr std::uint32_t kib = 1U << 10;
constexpr std::uint32_t mib = 1U << 20;

const std::vector<BlockCase>& block_cases() {
    static const std::vector<BlockCase> cases = {
        {"read", Work::read, Access::sequential, "read", false, Promise::bulk, {{mib, 8}, {mib, 4}, {4 * mib, 4}}},
        {"overwrite",
         Work::write,
         Access::sequential,
         "write",
         false,
         Promise::bulk,
         {{mib, 8}, {mib, 4}, {4 * mib, 4}}},
        {"random-read", Work::read, Access::random, "randread", false, Promise::none, {{mib, 8}, {128 * kib, 32}}},
        {"random-overwrite",
         Work::write,
         Access::random,
         "randwrite",
         false,
         Promise::none,
         {{mib, 8}, {128 * kib, 32}}},
        {"mixed", Work::half_each, Access::sequential, "rw", false, Promise::none, {{mib, 8}}},
        {"first-write", Work::write, Access::sequential, "write", true, Promise::none, {{mib, 8}}},
    };
    return cases;
}

const BlockCase& find_case(const std::string& name) {
    const auto found =
        std::find_if(block_cases().begin(), block_cases().end(), [&](const BlockCase& c) { return c.name == name; });
    PENSTOCK_CHECK(found != block_cases().end(), "case {}", name);
    return *found;
}

// One case at one point: both sides, on the file of the bench or on a fresh one.
class BlockRun {
   public:
    BlockRun(IoBench& bench, const BlockCase& its_case, const IoPoint& point)
        : bench_(bench),
          case_(its_case),
          point_(point),
          rig_(bench.file.file(),
               bench.rig(zero::plain_rig(point.block_bytes, std::uint64_t{point.block_bytes} * point.depth))) {
        bench.note(rig_.notes());
    }

    zero::Moved ours() {
        const auto fresh = fresh_file();
        const BenchFile& file = fresh ? *fresh : bench_.file;
        zero::BlockSource source(file.file(), {.work = case_.work,
                                               .access = case_.access,
                                               .block_bytes = point_.block_bytes,
                                               .file_bytes = file.bytes(),
                                               .once = case_.fresh});
        return rig_.run(source, seconds());
    }

    zero::Moved fio(FioMemory memory) {
        const auto fresh = fresh_file();
        const FioCommand command = fio_command(fresh ? *fresh : bench_.file, memory);
        return moved_by_fio(bench_, command);
    }

    FioCommand fio_command(const BenchFile& file, FioMemory memory) const {
        return {.path = file.path(),
                .bytes = file.bytes(),
                .seconds = seconds(),
                .memory = memory,
                .registered_memory = rig_.registered_memory(),
                .registered_file = rig_.registered_file() && !case_.fresh,
                .jobs = {{.name = case_.name,
                          .pattern = case_.pattern,
                          .block_bytes = point_.block_bytes,
                          .depth = point_.depth}}};
    }

   private:
    std::optional<double> seconds() const {
        return case_.fresh ? std::nullopt : std::optional(bench_.options.round_seconds());
    }
    std::unique_ptr<BenchFile> fresh_file() const {
        if (!case_.fresh) return nullptr;
        return std::make_unique<BenchFile>(bench_.options.directory, "fresh", bench_.file.bytes());
    }

    IoBench& bench_;
    const BlockCase& case_;
    const IoPoint point_;
    zero::IoRig rig_;
};

}  // namespace

const std::vector<std::string>& block_case_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> found;
        for (const BlockCase& one : block_cases()) found.push_back(one.name);
        return found;
    }();
    return names;
}

std::vector<IoPoint> points_of(const IoBenchOptions& options, const std::string& name) {
    return options.points.empty() ? find_case(name).points : options.points;
}

void run_block_case(IoBench& bench, const std::string& name) {
    const BlockCase& its_case = find_case(name);
    for (const IoPoint& point : points_of(bench.options, name)) {
        const std::string what = fmt::format("{} {}", name, to_string(point));
        BlockRun run(bench, its_case, point);
        Series ours{.who = "penstock", .rounds = {}};
        std::vector<Series> fio;
        for (const FioMemory memory : bench.fio) {
            fio.push_back({.who = to_string(memory), .rounds = {}});
            bench.report.command(shown(fio_arguments(run.fio_command(bench.file, memory))));
        }
        run_rounds(bench, what, 1 + fio.size(), [&](std::size_t i) {
            if (i == 0) {
                ours.rounds.push_back(run.ours());
            } else {
                fio[i - 1].rounds.push_back(run.fio(bench.fio[i - 1]));
            }
        });
        report_comparison(bench.report, what, ours, fio, bench.fio, its_case.promise);
    }
}

void fill(IoBench& bench, const BenchFile& file) {
    constexpr std::uint32_t block = mib;
    zero::IoRig rig(file.file(), bench.rig(zero::plain_rig(block, 8 * block)));
    zero::BlockSource source(file.file(),
                             {.work = Work::write, .block_bytes = block, .file_bytes = file.bytes(), .once = true});
    rig.run(source);
}

}  // namespace penstock::bench
