#include "bench/transfer/transfer_rig.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

namespace penstock::bench {

namespace {

constexpr auto in_use = "in";
constexpr auto out_use = "out";
constexpr auto own_use = "pattern";

TransferOptions checked(const TransferOptions& options) {
    std::error_code unknown;
    if (!std::filesystem::is_directory(options.directory, unknown))
        throw Error(ExitCode::usage, fmt::format("--dir: {} is no directory", options.directory));
    if (options.tile_bytes == 0 || options.tile_bytes % pool::granule_bytes != 0)
        throw Error(ExitCode::usage,
                    fmt::format("--tile: {} is no multiple of {}", options.tile_bytes, pool::granule_bytes));
    if (options.bytes == 0 || options.bytes % pool::granule_bytes != 0)
        throw Error(ExitCode::usage,
                    fmt::format("--size: {} is no multiple of {}", options.bytes, pool::granule_bytes));
    PENSTOCK_CHECK(options.tiles_on_their_way > 0, "no tile on its way");
    return options;
}

pool::Budget budget_of(const TransferOptions& options) {
    const std::uint64_t ring = options.tiles_on_their_way * options.tile_bytes;
    pool::Budget budget(2 * ring + options.tile_bytes, "--tile and --tiles");
    budget.add({.name = in_use, .bytes = ring, .setting = "--tiles"});
    budget.add({.name = out_use, .bytes = ring, .setting = "--tiles"});
    budget.add({.name = own_use, .bytes = options.tile_bytes, .setting = "--tile"});
    return budget;
}

// Without a name from the start: nothing is left behind, whatever ends the program.
aio::File make_file(const TransferOptions& options, const char* way) {
    const std::string path = (std::filesystem::path(options.directory) /
                              fmt::format(".penstock-bench-{}-{}", static_cast<long>(::getpid()), way))
                                 .string();
    aio::File file(AT_FDCWD, path, path, {.mode = aio::FileMode::create});
    ::unlink(path.c_str());
    file.reserve(options.bytes);
    return file;
}

// Each word tells its place and the seed.
void write_pattern(std::byte* data, std::uint64_t offset_bytes, std::uint64_t bytes, std::uint64_t seed) {
    for (std::uint64_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
        const std::uint64_t word = (offset_bytes + at + 1) * 0x9e3779b97f4a7c15ULL ^ (seed * 0xbf58476d1ce4e5b9ULL);
        std::memcpy(data + at, &word, sizeof(word));
    }
}

bool holds_pattern(const std::byte* data, std::uint64_t offset_bytes, std::uint64_t bytes, std::uint64_t seed) {
    std::uint64_t difference = 0;
    for (std::uint64_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, data + at, sizeof(word));
        difference |= word ^ ((offset_bytes + at + 1) * 0x9e3779b97f4a7c15ULL ^ (seed * 0xbf58476d1ce4e5b9ULL));
    }
    return difference == 0;
}

}  // namespace

TransferRig::TransferRig(const TransferOptions& options)
    : options_(checked(options)),
      pool_(budget_of(options_), pool::MachineMemory::read(),
            {.registration =
                 options_.device == zero::DeviceKind::cuda ? pool::Registration::device : pool::Registration::none}),
      device_(zero::make_device(
          {.kind = options_.device, .budget_bytes = 2 * options_.bytes, .copy_delay = options_.copy_delay})),
      in_file_(make_file(options_, in_use)),
      out_file_(make_file(options_, out_use)),
      in_transfers_(options_.tiles_on_their_way),
      out_transfers_(options_.tiles_on_their_way),
      chosen_(aio::open_backend(in_file_.fd(), {})),
      io_(std::move(chosen_.backend), {}) {
    device_->cut_at_seams_of(pool_);
    if (has_device_memory()) {
        in_memory_ = device_->allocate(options_.bytes, "what comes in");
        out_memory_ = device_->allocate(options_.bytes, "what goes out");
    }
    notes_ = pool_.notes();
    for (const std::string& line : {chosen_.note, in_file_.fallback()}) {
        if (!line.empty()) notes_.push_back(line);
    }
    write_file(in_file_, 0);  // so that no round writes to fresh blocks
    write_file(out_file_, 0);
}

StreamParts TransferRig::parts(Way way) {
    const bool in = way == Way::in;
    return {.io = &io_,
            .pool = &pool_,
            .use = pool_.use(in ? in_use : out_use),
            .transfers = in ? in_transfers_ : out_transfers_,
            .device = device_.get(),
            .file = in ? &in_file_ : &out_file_,
            .device_memory = in ? in_memory_ : out_memory_,
            .bytes = options_.bytes,
            .tile_bytes = options_.tile_bytes};
}

TransferStream TransferRig::stream(Way way, Links links) {
    PENSTOCK_CHECK(links == Links::drive || has_device_memory(), "device {} makes no copies", device_->name());
    return {way, links, parts(way)};
}

void TransferRig::prepare(Way way, std::uint64_t seed) {
    if (way == Way::in) {
        write_file(in_file_, seed);
    } else {
        fill_device(out_memory_, seed);
    }
}

bool TransferRig::arrived(Way way, std::uint64_t seed) {
    return way == Way::in ? device_holds(in_memory_, seed) : file_holds(out_file_, seed);
}

// One tile between `own_`'s lease and a file.
void TransferRig::move_tile(aio::IoKind kind, const aio::File& file, std::uint64_t offset_bytes, std::uint64_t bytes) {
    io_.start(own_,
              {.kind = kind, .file = &file, .data = own_.lease.data(), .offset_bytes = offset_bytes, .bytes = bytes});
    if (const auto stuck = io_.finish(own_)) throw Error(ExitCode::storage, stuck->message());
    if (own_.error()) throw Error(ExitCode::storage, own_.error()->message());
}

void TransferRig::write_file(const aio::File& file, std::uint64_t seed) {
    own_.lease = pool_.acquire(pool_.use(own_use), options_.tile_bytes);
    for (std::uint64_t offset = 0; offset < options_.bytes; offset += options_.tile_bytes) {
        const std::uint64_t bytes = std::min(options_.tile_bytes, options_.bytes - offset);
        write_pattern(own_.lease.data(), offset, bytes, seed);
        move_tile(aio::IoKind::write, file, offset, bytes);
    }
    own_.lease.reset();
}

bool TransferRig::file_holds(const aio::File& file, std::uint64_t seed) {
    own_.lease = pool_.acquire(pool_.use(own_use), options_.tile_bytes);
    bool same = true;
    for (std::uint64_t offset = 0; offset < options_.bytes; offset += options_.tile_bytes) {
        const std::uint64_t bytes = std::min(options_.tile_bytes, options_.bytes - offset);
        move_tile(aio::IoKind::read, file, offset, bytes);
        same = holds_pattern(own_.lease.data(), offset, bytes, seed) && same;
    }
    own_.lease.reset();
    return same;
}

void TransferRig::await(zero::Ticket ticket) {
    if (!device_->wait(ticket, std::chrono::seconds(60)))
        throw Error(ExitCode::internal, fmt::format("a copy of device '{}' has not come back", device_->name()));
}

void TransferRig::fill_device(std::byte* memory, std::uint64_t seed) {
    const pool::Lease lease = pool_.acquire(pool_.use(own_use), options_.tile_bytes);
    for (std::uint64_t offset = 0; offset < options_.bytes; offset += options_.tile_bytes) {
        const std::uint64_t bytes = std::min(options_.tile_bytes, options_.bytes - offset);
        write_pattern(lease.data(), offset, bytes, seed);
        await(device_->copy_in(memory + offset, lease.data(), bytes));
    }
}

bool TransferRig::device_holds(const std::byte* memory, std::uint64_t seed) {
    const pool::Lease lease = pool_.acquire(pool_.use(own_use), options_.tile_bytes);
    bool same = true;
    for (std::uint64_t offset = 0; offset < options_.bytes; offset += options_.tile_bytes) {
        const std::uint64_t bytes = std::min(options_.tile_bytes, options_.bytes - offset);
        await(device_->copy_out(lease.data(), memory + offset, bytes));
        same = holds_pattern(lease.data(), offset, bytes, seed) && same;
    }
    return same;
}

}  // namespace penstock::bench
