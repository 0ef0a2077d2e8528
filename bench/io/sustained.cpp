// A drive's fast write cache runs out after gigabytes; plans must count on what comes after.
#include "bench/harness/change_point.h"
#include "bench/io/tune.h"
#include "zero_infinity/measure/block_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace penstock::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t mib = 1U << 20;
constexpr std::uint64_t usual_bytes = 32ULL << 30;
constexpr double usual_period = 0.5;  // seconds of one sample
constexpr double fewest_samples = 16;
constexpr std::size_t most_samples = 1U << 16;

// Goes over the file once and looks at the clock: what was started within a period was written in it, up to the few
// MiB in flight.
class SampledSource final : public zero::RequestSource {
   public:
    SampledSource(const aio::File& file, const zero::BlockPlan& plan, double period)
        : blocks_(file, plan), period_(period), begin_(Clock::now()) {
        samples_.reserve(most_samples);
    }
    bool next(std::size_t slot, aio::TransferRequest& request) noexcept override {
        const auto now = Clock::now();
        const double seconds = std::chrono::duration<double>(now - begin_).count();
        if (seconds >= period_ && samples_.size() < most_samples) {
            samples_.push_back({.seconds = seconds, .bytes = bytes_});
            say_rate();
            begin_ = now;
            bytes_ = 0;
        }
        if (!blocks_.next(slot, request)) return false;
        bytes_ += request.bytes;
        return true;
    }
    const std::vector<RateSample>& samples() const noexcept { return samples_; }

   private:
    void say_rate() const noexcept {
        const RateSample& last = samples_.back();
        std::fprintf(stderr, "penstock: sustained: %.2f GB/s\n", static_cast<double>(last.bytes) / 1e9 / last.seconds);
    }

    zero::BlockSource blocks_;
    const double period_;
    Clock::time_point begin_;
    std::uint64_t bytes_ = 0;
    std::vector<RateSample> samples_;
};

struct Pass {
    zero::Moved moved;
    std::vector<RateSample> samples;
};

Pass write_pass(const IoBench& bench, zero::IoRig& rig, const BenchFile& file, const aio::DeviceProfile& profile,
                std::uint64_t bytes) {
    const std::optional<double> limit = bench.options.seconds;
    const double period = limit ? std::min(usual_period, *limit / fewest_samples) : usual_period;
    SampledSource source(
        file.file(),
        {.work = zero::BlockWork::write, .block_bytes = profile.block_bytes, .file_bytes = bytes, .once = true},
        period);
    Pass pass{.moved = rig.run(source, limit), .samples = source.samples()};
    // A pass shorter than a period is its own only sample.
    if (pass.samples.empty()) pass.samples.push_back({.seconds = pass.moved.seconds, .bytes = pass.moved.bytes});
    return pass;
}

void report_course(Report& report, const std::string& name, const Pass& pass) {
    Figure figure{.name = name, .unit = "GB/s", .rounds = {}, .target = {}};
    for (const RateSample& sample : pass.samples)
        figure.rounds.push_back(static_cast<double>(sample.bytes) / 1e9 / sample.seconds);
    report.add(std::move(figure));
}

}  // namespace

std::uint64_t sustained_file_bytes(const IoBenchOptions& options) {
    constexpr std::uint64_t unit = 16 * mib;
    const std::uint64_t half_of_free = free_space_bytes(options.directory) / 2;
    const std::uint64_t wanted = options.sustained_bytes.value_or(std::min(usual_bytes, half_of_free));
    return std::max(unit, wanted / unit * unit);
}

void put_sustained(aio::DeviceProfile& profile, const SustainedRate& found) noexcept {
    profile.sustained_write_bytes_per_second.reset();
    profile.write_cache_bytes = found.cache_bytes;
    if (found.cache_bytes) profile.sustained_write_bytes_per_second = found.bytes_per_second;
}

void measure_sustained(IoBench& bench, aio::DeviceProfile& profile) {
    const BenchFile file(bench.options.directory, "sustained", sustained_file_bytes(bench.options));
    say_progress(
        fmt::format("sustained: writes up to {} twice; this wears the drive by as much", bytes_text(file.bytes())));
    const std::uint64_t in_flight = profile.write_in_flight_bytes / profile.block_bytes * profile.block_bytes;
    zero::IoRig rig(file.file(), bench.rig(zero::plain_rig(profile.block_bytes, in_flight)));
    bench.note(rig.notes());
    const Pass first = write_pass(bench, rig, file, profile, file.bytes());
    const Pass second = write_pass(bench, rig, file, profile, first.moved.bytes);
    report_course(bench.report, "sustained: course of the first write", first);
    report_course(bench.report, "sustained: course of the overwriting", second);
    const SustainedRate found = sustained_rate(first.samples, second.samples);
    put_sustained(profile, found);
    bench.report.note(
        found.cache_bytes
            ? fmt::format("sustained: the rate fell after {:.2f} GB; {:.2f} GB/s remain",
                          static_cast<double>(*found.cache_bytes) / 1e9, found.bytes_per_second / 1e9)
            : fmt::format(
                  "sustained: the rate did not fall within {:.2f} GB; {:.2f} GB/s. A larger cache may be behind "
                  "it, so the profile gets no sustained rate: --sustained-bytes",
                  static_cast<double>(first.moved.bytes + second.moved.bytes) / 1e9, found.bytes_per_second / 1e9));
}

}  // namespace penstock::bench
