#include "bench/tensor_case.h"

#include "aio/check.h"
#include "aio/error.h"
#include "bench/comparison.h"
#include "bench/io_rig.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

namespace penstock {
namespace {

constexpr std::uint64_t shortest = 1'000'000;
constexpr std::uint64_t longest = 1'000'000'000;
constexpr std::uint64_t seed = 2026;

using Mark = std::array<std::byte, 8>;

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

// Where each tensor lies: extents rounded up to what direct I/O asks for.
struct TensorPlan {
    std::vector<std::uint64_t> bytes;
    std::vector<std::size_t> lease_bytes;  // exact, unless the alignment is beyond the pool's granule
    std::vector<std::uint64_t> extent_bytes;
    std::vector<std::uint64_t> offset_bytes;
};

TensorPlan plan_tensors(const BenchFile& file) {
    TensorPlan plan;
    const std::uint64_t alignment = std::max<std::uint64_t>(granule_bytes, file.file().alignment().offset_bytes);
    std::uint64_t at = 0;
    for (const std::uint64_t bytes : tensor_lengths(file.bytes(), seed)) {
        const std::uint64_t extent = rounded(bytes, alignment);
        if (at + extent > file.bytes()) break;
        plan.bytes.push_back(bytes);
        plan.lease_bytes.push_back(alignment > granule_bytes ? extent : bytes);
        plan.extent_bytes.push_back(extent);
        plan.offset_bytes.push_back(at);
        at += extent;
    }
    return plan;
}

// Every tensor again and again; each at least once.
class TensorSource final : public RequestSource {
   public:
    TensorSource(const File& file, const TensorPlan& plan, IoKind kind) : file_(file), plan_(plan), kind_(kind) {}
    bool next(std::size_t slot, TransferRequest& request) noexcept override {
        tensor_bytes_ += plan_.bytes[slot];
        request = {.kind = kind_,
                   .file = &file_,
                   .offset_bytes = plan_.offset_bytes[slot],
                   .bytes = plan_.extent_bytes[slot],
                   .urgency = {}};
        return true;
    }
    std::uint64_t tensor_bytes() const noexcept { return tensor_bytes_; }  // without what rounding adds

   private:
    const File& file_;
    const TensorPlan& plan_;
    IoKind kind_;
    std::uint64_t tensor_bytes_ = 0;
};

class TensorRun {
   public:
    explicit TensorRun(IoBench& bench)
        : bench_(bench),
          plan_(plan_tensors(bench.file)),
          rig_(bench.file.file(), {.lease_bytes = plan_.lease_bytes,
                                   .limits = {},
                                   .backend = bench.options.backend,
                                   .registration = bench.options.registration}) {
        bench.note(rig_.notes());
    }

    const TensorPlan& plan() const noexcept { return plan_; }
    const IoRig& rig() const noexcept { return rig_; }

    Moved write() {
        ++generation_;
        for (std::size_t i = 0; i < plan_.bytes.size(); ++i) put_marks(i, mark_of(i));
        const Moved moved = transfer(IoKind::write, bench_.options.round_seconds());
        clear_marks();
        transfer(IoKind::read, 0);
        expect_marks();
        return moved;
    }

    Moved read() {
        clear_marks();
        const Moved moved = transfer(IoKind::read, bench_.options.round_seconds());
        expect_marks();
        return moved;
    }

   private:
    Moved transfer(IoKind kind, double seconds) {
        TensorSource source(bench_.file.file(), plan_, kind);
        Moved moved = rig_.run(source, seconds, bench_.stop);
        moved.bytes = source.tensor_bytes();
        return moved;
    }

    // The first and last 8 bytes of a tensor say which it is and in which round it was written.
    Mark mark_of(std::size_t tensor) const {
        const std::uint64_t word = generation_ << 32 | (tensor + 1);
        Mark mark;
        std::memcpy(mark.data(), &word, sizeof(word));
        return mark;
    }
    void put_marks(std::size_t tensor, const Mark& mark) {
        std::byte* data = rig_.memory(tensor).data();
        std::memcpy(data, mark.data(), mark.size());
        std::memcpy(data + plan_.bytes[tensor] - mark.size(), mark.data(), mark.size());
    }
    void clear_marks() {
        for (std::size_t i = 0; i < plan_.bytes.size(); ++i) put_marks(i, Mark{});
    }
    void expect_marks() const {
        for (std::size_t i = 0; i < plan_.bytes.size(); ++i) {
            const std::byte* data = rig_.memory(i).data();
            const Mark mark = mark_of(i);
            const bool same = std::memcmp(data, mark.data(), mark.size()) == 0 &&
                              std::memcmp(data + plan_.bytes[i] - mark.size(), mark.data(), mark.size()) == 0;
            if (same) continue;
            throw Error(ExitCode::storage,
                        fmt::format("{}: tensor {} of {} bytes at offset {} came back with other bytes than were "
                                    "written; do not trust this device",
                                    bench_.file.path(), i, plan_.bytes[i], plan_.offset_bytes[i]));
        }
    }

    IoBench& bench_;
    const TensorPlan plan_;
    IoRig rig_;
    std::uint64_t generation_ = 0;
};

void compare(IoBench& bench, TensorRun& run, IoKind kind) {
    const std::string what = fmt::format("tensors {}", to_string(kind));
    const auto command = [&](FioMemory memory) {
        return FioCommand{.path = bench.file.path(),
                          .bytes = bench.file.bytes(),
                          .seconds = bench.options.round_seconds(),
                          .memory = memory,
                          .registered_memory = run.rig().registered_memory(),
                          .registered_file = run.rig().registered_file(),
                          .jobs = {{.name = "bulk", .pattern = to_string(kind)}}};
    };
    Series ours{.who = "penstock", .rounds = {}};
    std::vector<Series> fio;
    for (const FioMemory memory : bench.fio) {
        fio.push_back({.who = to_string(memory), .rounds = {}});
        bench.report.command(shown(fio_arguments(command(memory))));
    }
    run_rounds(bench, what, 1 + fio.size(), [&](std::size_t i) {
        if (i == 0) {
            ours.rounds.push_back(kind == IoKind::read ? run.read() : run.write());
        } else {
            fio[i - 1].rounds.push_back(moved_by_fio(bench, command(bench.fio[i - 1])));
        }
    });
    report_comparison(bench.report, what, ours, fio, bench.fio, Promise::tensors);
}

}  // namespace

std::vector<std::uint64_t> tensor_lengths(std::uint64_t total_bytes, std::uint64_t first) {
    PENSTOCK_CHECK(total_bytes >= 4 * shortest, "{} bytes in all", total_bytes);
    std::mt19937_64 random(first);
    std::vector<std::uint64_t> lengths;
    std::uint64_t left = total_bytes;
    const double span = std::log(static_cast<double>(longest) / static_cast<double>(shortest));
    while (left >= 2 * shortest) {
        // 53 bits to [0, 1): the standard's distributions differ from library to library.
        const double share = static_cast<double>(random() >> 11) * 0x1p-53;
        const auto wish = static_cast<std::uint64_t>(static_cast<double>(shortest) * std::exp(share * span));
        // Half of what is left, so that neither one tensor nor a long tail of the shortest fills the rest.
        const std::uint64_t bytes = std::min({wish, longest - 1, std::max(left / 2, shortest)}) | 1;
        lengths.push_back(bytes);
        left -= std::min(left, bytes + granule_bytes);
    }
    return lengths;
}

void run_tensor_case(IoBench& bench) {
    TensorRun run(bench);
    const auto& lengths = run.plan().bytes;
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : lengths) sum += bytes;
    const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
    bench.report.fact(
        "tensors", fmt::format("{} of {} to {} bytes, {} in all, seed {}", lengths.size(), *least, *most, sum, seed));
    compare(bench, run, IoKind::write);
    run.write();  // fio has overwritten the tensors since
    compare(bench, run, IoKind::read);
}

}  // namespace penstock
