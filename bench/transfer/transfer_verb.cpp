// `penstock-bench transfer`: the way from the drive through host memory to the device and back, as a share of its
// slowest link.
#include "aio/words/error.h"
#include "bench/harness/byte_option.h"
#include "bench/harness/verbs.h"
#include "bench/harness/word_option.h"
#include "bench/transfer/transfer_rig.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::bench {
namespace {

struct VerbOptions {
    TransferOptions transfer;
    std::string device = auto_word;
    int rounds = static_cast<int>(min_rounds);
};

// One thing that is timed in each round.
struct Measured {
    const char* name;
    Links links;
    bool in;
    bool out;
};

// Each pipeline stands behind the links it is compared with.
constexpr std::array measured{Measured{"drive -> host", Links::drive, true, false},
                              Measured{"host -> device", Links::copy, true, false},
                              Measured{"drive -> host -> device", Links::both, true, false},
                              Measured{"host -> drive", Links::drive, false, true},
                              Measured{"device -> host", Links::copy, false, true},
                              Measured{"device -> host -> drive", Links::both, false, true},
                              Measured{"drive <-> host", Links::drive, true, true},
                              Measured{"host <-> device", Links::copy, true, true},
                              Measured{"drive <-> host <-> device", Links::both, true, true}};

class Rounds {
   public:
    explicit Rounds(const TransferOptions& options) : options_(options), rig_(options) {}

    void measure(int rounds);
    void report(Report& report) const;

   private:
    bool possible(const Measured& one) const { return one.links == Links::drive || rig_.has_device_memory(); }
    double seconds_of(const Measured& one);
    void add_share(Report& report, const Measured* links_of_pipeline) const;

    const TransferOptions options_;
    TransferRig rig_;
    std::uint64_t seed_ = 0;
    std::map<std::string, std::vector<double>> rates_;
};

// Data is prepared and compared outside of the timed section.
double Rounds::seconds_of(const Measured& one) {
    const bool whole = one.links == Links::both;
    ++seed_;
    if (whole && one.in) rig_.prepare(Way::in, seed_);
    if (whole && one.out) rig_.prepare(Way::out, ~seed_);
    TransferStream in = rig_.stream(Way::in, one.links);
    TransferStream out = rig_.stream(Way::out, one.links);
    const double seconds = one.in && one.out ? run({&in, &out}) : run({one.in ? &in : &out});
    const bool right =
        !whole || ((!one.in || rig_.arrived(Way::in, seed_)) && (!one.out || rig_.arrived(Way::out, ~seed_)));
    if (!right) throw Error(ExitCode::storage, fmt::format("{}: the data that arrived is not what was sent", one.name));
    return seconds;
}

void Rounds::measure(int rounds) {
    for (int round = 0; round < rounds; ++round) {
        for (const Measured& one : measured) {
            if (!possible(one)) continue;
            const auto bytes = static_cast<double>((one.in && one.out ? 2 : 1) * options_.bytes);
            rates_[one.name].push_back(bytes / 1e9 / seconds_of(one));
        }
    }
}

// The pipeline over the slower of the two links before it in the table, round by round.
void Rounds::add_share(Report& report, const Measured* pipeline) const {
    const std::vector<double>& drive = rates_.at(pipeline[-2].name);
    const std::vector<double>& copy = rates_.at(pipeline[-1].name);
    Figure slowest{.name = "", .unit = "GB/s", .rounds = {}};
    for (std::size_t i = 0; i < drive.size(); ++i) slowest.rounds.push_back(std::min(drive[i], copy[i]));
    report.add(ratio(fmt::format("{} / its slowest link", pipeline->name), *report.find(pipeline->name), slowest));
}

void Rounds::report(Report& report) const {
    report.fact("device", rig_.device_name());
    report.fact("directory", options_.directory);
    report.fact("file", rig_.file().direct() ? "direct I/O" : "page cache");
    report.fact("backend", rig_.backend_name());
    report.fact("bytes", fmt::format("{} in each direction, in tiles of {}, {} on their way", options_.bytes,
                                     options_.tile_bytes, options_.tiles_on_their_way));
    report.fact("pool", fmt::format("{} bytes, {} of them in huge pages, {}registered with the device",
                                    rig_.pool().arena_bytes(), rig_.pool().huge_bytes(),
                                    rig_.pool().registered() ? "" : "not "));
    for (const Measured& one : measured) {
        if (!rates_.contains(one.name)) continue;
        report.add({.name = one.name, .unit = "GB/s", .rounds = rates_.at(one.name)});
        if (one.links == Links::both) add_share(report, &one);
    }
    for (const std::string& note : rig_.notes()) report.note(note);
    if (rig_.has_device_memory()) {
        report.note("<-> : both directions at once; the rate is their sum. Data was compared after each whole way.");
    } else {
        report.note("The cpu device computes in host memory: there is no copy, and the drive is the only link.");
    }
}

// What is there: a GPU, else the emulated device.
zero::DeviceKind best_device() {
    try {
        zero::make_device({.kind = zero::DeviceKind::cuda, .budget_bytes = 1U << 20});
        return zero::DeviceKind::cuda;
    } catch (const Error&) {
        return zero::DeviceKind::emulated;
    }
}

void measure_transfer(const VerbOptions& options, Report& report) {
    TransferOptions transfer = options.transfer;
    const auto wanted = find_word<zero::DeviceKind>(options.device);
    transfer.device = wanted ? *wanted : best_device();
    Rounds rounds(transfer);
    rounds.measure(options.rounds);
    rounds.report(report);
}

}  // namespace

BenchRun add_transfer_verb(CLI::App& app) {
    const auto options = std::make_shared<VerbOptions>();
    TransferOptions& transfer = options->transfer;
    CLI::App* verb = app.add_subcommand("transfer", "Drive to host to device and back, overlapped, through the pool");
    verb->add_option("--dir", transfer.directory, "a directory on the drive; needs twice --size, leaves nothing")
        ->required();
    verb->add_option("--device", options->device, "auto: cuda where there is one, else emulated")
        ->check(CLI::IsMember(auto_or_words<zero::DeviceKind>()))
        ->capture_default_str();
    verb->add_option("--size", transfer.bytes, "bytes in each direction, e.g. 1GiB; the device gets twice as much")
        ->transform(bytes_of_text)
        ->capture_default_str();
    verb->add_option("--tile", transfer.tile_bytes, "bytes of one lease")
        ->transform(bytes_of_text)
        ->capture_default_str();
    verb->add_option("--tiles", transfer.tiles_on_their_way, "leases in each direction")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    verb->add_option("--rounds", options->rounds, "of all figures, interleaved")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    verb->footer("Example:\n  penstock bench transfer --dir /nvme --json\n");
    return [options](Report& report) { measure_transfer(*options, report); };
}

}  // namespace penstock::bench
