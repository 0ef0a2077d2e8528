#include "bench/io/tensor_run.h"

#include "aio/words/byte_count.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace penstock::bench {
namespace {

constexpr std::uint64_t shortest = 1'000'000;
constexpr std::uint64_t longest = 1'000'000'000;

TensorPlan plan_tensors(const BenchFile& file) {
    TensorPlan plan;
    const std::uint64_t alignment = std::max<std::uint64_t>(pool::granule_bytes, file.file().alignment().offset_bytes);
    std::uint64_t at = 0;
    for (const std::uint64_t bytes : tensor_lengths(file.bytes(), TensorRun::seed)) {
        const std::uint64_t extent = round_up(bytes, alignment);
        if (at + extent > file.bytes()) break;
        plan.bytes.push_back(bytes);
        plan.lease_bytes.push_back(alignment > pool::granule_bytes ? extent : bytes);
        plan.extent_bytes.push_back(extent);
        plan.offset_bytes.push_back(at);
        at += extent;
    }
    return plan;
}

// Every tensor again and again; each at least once.
class TensorSource final : public zero::RequestSource {
   public:
    TensorSource(const aio::File& file, const TensorPlan& plan, aio::IoKind kind)
        : file_(file), plan_(plan), kind_(kind) {}
    bool next(std::size_t slot, aio::TransferRequest& request) noexcept override {
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
    const aio::File& file_;
    const TensorPlan& plan_;
    aio::IoKind kind_;
    std::uint64_t tensor_bytes_ = 0;
};

}  // namespace

TensorRun::TensorRun(IoBench& bench)
    : bench_(bench),
      plan_(plan_tensors(bench.file)),
      rig_(bench.file.file(), bench.rig({.lease_bytes = plan_.lease_bytes})) {
    bench.note(rig_.notes());
}

zero::Moved TensorRun::write() {
    ++generation_;
    for (std::size_t i = 0; i < plan_.bytes.size(); ++i) put_marks(i, mark_of(i));
    return transfer(aio::IoKind::write);
}

zero::Moved TensorRun::read() {
    for (std::size_t i = 0; i < plan_.bytes.size(); ++i) put_marks(i, Mark{});
    const zero::Moved moved = transfer(aio::IoKind::read);
    expect_marks();
    return moved;
}

zero::Moved TensorRun::transfer(aio::IoKind kind) {
    TensorSource source(bench_.file.file(), plan_, kind);
    zero::Moved moved = rig_.run(source, bench_.options.round_seconds());
    moved.bytes = source.tensor_bytes();
    return moved;
}

TensorRun::Mark TensorRun::mark_of(std::size_t tensor) const {
    const std::uint64_t word = generation_ << 32 | (tensor + 1);
    Mark mark;
    std::memcpy(mark.data(), &word, sizeof(word));
    return mark;
}

void TensorRun::put_marks(std::size_t tensor, const Mark& mark) {
    std::byte* data = rig_.memory(tensor).data();
    std::memcpy(data, mark.data(), mark.size());
    std::memcpy(data + plan_.bytes[tensor] - mark.size(), mark.data(), mark.size());
}

void TensorRun::expect_marks() const {
    for (std::size_t i = 0; i < plan_.bytes.size(); ++i) {
        const std::byte* data = rig_.memory(i).data();
        const Mark mark = mark_of(i);
        const bool same = std::memcmp(data, mark.data(), mark.size()) == 0 &&
                          std::memcmp(data + plan_.bytes[i] - mark.size(), mark.data(), mark.size()) == 0;
        if (same) continue;
        throw Error(ExitCode::storage,
                    fmt::format("{}: tensor {} of {} bytes at offset {} came back with other bytes than were written; "
                                "do not trust this device",
                                bench_.file.path(), i, plan_.bytes[i], plan_.offset_bytes[i]));
    }
}

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
        left -= std::min(left, bytes + pool::granule_bytes);
    }
    return lengths;
}

}  // namespace penstock::bench
