#include "swap/spill/spill.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "aio/words/spare_text.h"
#include "swap/spill/spill_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::store {
namespace {

constexpr std::size_t max_notes = 100;
constexpr const char* remedy = "What was committed is whole: check the drive (dmesg, smartctl), then start again";

}  // namespace

void SpillOperation::done() noexcept {
    spill_->finished(*this);
}

Spill::Spill(aio::Io& io, std::vector<StoreDirectory*> directories, SpillOptions options)
    : io_(&io), directories_(std::move(directories)), options_(std::move(options)) {
    if (options_.shares.empty()) options_.shares.assign(directories_.size(), 1);
    PENSTOCK_CHECK(!directories_.empty() && options_.shares.size() == directories_.size(),
                   "a spill in {} directories with {} shares", directories_.size(), options_.shares.size());
    for (const std::uint16_t share : options_.shares) PENSTOCK_CHECK(share > 0, "a share of {}", share);
    notes_.reserve(max_notes);  // what is noted where nothing may throw has its place
}

Spill::~Spill() {
    PENSTOCK_CHECK(in_flight_ == 0, "a spill is destroyed with {} operations in flight", in_flight_);
}

// ---------------------------------------------------------------- blocks

void Spill::open() {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < directories_.size(); ++i) {
        aio::File file = make_spill_file(*directories_[i], options_.caching);
        const aio::Alignment wanted = file.alignment();
        if (std::max(wanted.memory_bytes, wanted.offset_bytes) > spill_granule_bytes)
            throw Error(
                ExitCode::storage,
                fmt::format("{} asks for an alignment of {} bytes; at most {} are possible for what is "
                            "spilled. Choose another device.",
                            file.path(), std::max(wanted.memory_bytes, wanted.offset_bytes), spill_granule_bytes));
        if (!file.fallback().empty()) note(file.fallback());
        parts.push_back({.file = std::move(file), .share = options_.shares[i]});
    }
    parts_ = std::move(parts);
}

// So that bytes are shared out whatever the lengths of blocks are.
Spill::Part& Spill::part_for(std::uint64_t bytes) {
    const auto fill = [&](const Part& part) {
        return static_cast<double>(part.bytes + bytes) / static_cast<double>(part.share);
    };
    return *std::min_element(parts_.begin(), parts_.end(),
                             [&](const Part& one, const Part& other) { return fill(one) < fill(other); });
}

SpillBlock Spill::allocate(std::uint64_t bytes) {
    PENSTOCK_CHECK(bytes > 0, "a block of no bytes");
    if (parts_.empty()) open();
    const std::uint64_t whole = (bytes + spill_granule_bytes - 1) / spill_granule_bytes * spill_granule_bytes;
    Part& part = part_for(whole);
    try {
        part.file.reserve(part.bytes + whole);
    } catch (const Error& error) {
        if (error.code() != ExitCode::does_not_fit || options_.instead.empty()) throw;
        throw Error(error.code(), fmt::format("{} {}", error.what(), options_.instead));
    }
    records_.push_back(
        {.part = static_cast<std::uint32_t>(&part - parts_.data()), .offset_bytes = part.bytes, .bytes = whole});
    part.bytes += whole;
    return {static_cast<std::uint32_t>(records_.size() - 1)};
}

std::uint64_t Spill::block_bytes(SpillBlock block) const {
    return records_.at(block.index).bytes;
}

std::uint64_t Spill::reserved_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const Part& part : parts_) bytes += part.bytes;
    return bytes;
}

// ---------------------------------------------------------------- operations

void Spill::begin(SpillOperation& operation, SpillBlock block, std::span<std::byte> memory, aio::Urgency urgency) {
    Record& record = records_.at(block.index);
    PENSTOCK_CHECK(operation.idle() && !record.busy, "an operation on block {} while another is in flight",
                   block.index);
    PENSTOCK_CHECK(memory.size() >= record.bytes, "memory of {} bytes for a block of {}", memory.size(), record.bytes);
    PENSTOCK_CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % spill_granule_bytes == 0,
                   "memory {} is not aligned to {} bytes", fmt::ptr(memory.data()), spill_granule_bytes);
    record.busy = true;
    ++in_flight_;
    operation.spill_ = this;
    operation.block_ = block;
    operation.memory_ = memory.first(record.bytes);
    operation.urgency_ = urgency;
    operation.error_.reset();
}

void Spill::start(SpillOperation& operation, aio::IoKind kind) {
    const Record& record = records_[operation.block_.index];
    io_->start(operation, {.kind = kind,
                           .file = &parts_[record.part].file,
                           .data = operation.memory_.data(),
                           .offset_bytes = record.offset_bytes,
                           .bytes = record.bytes,
                           .urgency = operation.urgency_});
}

void Spill::write(SpillOperation& operation, SpillBlock block, std::span<std::byte> memory, aio::Urgency urgency) {
    begin(operation, block, memory, urgency);
    Record& record = records_[block.index];
    record.written = true;
    operation.stage_ = SpillOperation::Stage::writing;
    start(operation, aio::IoKind::write);
    if (record.bytes >= long_hash_bytes) io_->hand_over();  // the device works while the hash is taken
    record.hash = hash_tile(operation.memory_, {});
}

void Spill::read(SpillOperation& operation, SpillBlock block, std::span<std::byte> memory, aio::Urgency urgency) {
    PENSTOCK_CHECK(records_.at(block.index).written, "block {} was never written", block.index);
    begin(operation, block, memory, urgency);
    operation.stage_ = SpillOperation::Stage::reading;
    operation.reading_.begin();
    start(operation, aio::IoKind::read);
}

void Spill::promote(SpillOperation& operation, aio::Urgency urgency) noexcept {
    PENSTOCK_CHECK(!operation.idle() && operation.spill_ == this, "the operation is not one of this spill in flight");
    if (urgency < operation.urgency_) operation.urgency_ = urgency;
    io_->promote(operation, urgency);
}

void Spill::finished(SpillOperation& operation) noexcept {
    const bool writing = operation.stage_ == SpillOperation::Stage::writing;
    const auto& error = operation.Transfer::error();
    if (!error) (writing ? write_bytes_ : read_bytes_).fetch_add(operation.memory_.size(), std::memory_order_relaxed);
    if (error) {
        operation.error_ = StoreError{.kind = StoreError::Kind::io,
                                      .message = text_or_less([&] {
                                          return fmt::format("{} could not be {}: {}. {}.", describe(operation.block_),
                                                             writing ? "written" : "read", error->message(), remedy);
                                      })};
    } else if (!writing && !read_finished(operation)) {
        return;
    }
    records_[operation.block_.index].busy = false;
    --in_flight_;
    operation.stage_ = SpillOperation::Stage::idle;
    operation.spill_done();  // may have destroyed it
}

bool Spill::read_finished(SpillOperation& operation) noexcept {
    using Verdict = TwiceRead::Verdict;
    const SpillBlock block = operation.block_;
    switch (operation.reading_.judge(hash_tile(operation.memory_, {}) == records_[block.index].hash)) {
        case Verdict::right:
            return true;
        case Verdict::again:
            start(operation, aio::IoKind::read);
            return false;
        case Verdict::right_again:
            note(text_or_less([&] { return TwiceRead::note(describe(block)); }));
            return true;
        case Verdict::damaged:
            operation.error_ =
                StoreError{.kind = StoreError::Kind::damaged,
                           .message = text_or_less([&] { return TwiceRead::damage(describe(block), remedy); })};
            return true;
    }
    return true;
}

// ---------------------------------------------------------------- words

std::string Spill::describe(SpillBlock block) const {
    const Record& record = records_[block.index];
    return fmt::format("spilled block {} in {} at offset {} ({} bytes)", block.index, parts_[record.part].file.path(),
                       record.offset_bytes, record.bytes);
}

void Spill::note(std::string line) noexcept {
    if (notes_.size() < max_notes) notes_.push_back(std::move(line));
}

}  // namespace penstock::store
