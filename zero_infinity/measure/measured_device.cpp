#include "zero_infinity/measure/measured_device.h"

#include "aio/words/error.h"
#include "zero_infinity/measure/block_source.h"
#include "zero_infinity/measure/busy_cores.h"
#include "zero_infinity/measure/io_rig.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>

namespace penstock::zero {
namespace {

constexpr std::uint32_t tile_bytes = 4U << 20;   // about what a run moves at once
constexpr std::size_t tiles_of_each = 4;         // at once, by file and direction
constexpr std::size_t record_bytes = 64U << 10;  // a manifest's
constexpr double contention_seconds = 12;        // for each of another measurement

std::string nearest_that_is_there(const std::string& directory) {
    std::filesystem::path path = std::filesystem::absolute(directory);
    std::error_code error;
    while (!std::filesystem::is_directory(path, error) && path.has_parent_path() && path != path.parent_path())
        path = path.parent_path();
    return path.string();
}

aio::File nameless_file(const std::string& directory, const DeviceQuestion& question) {
    const std::string path = fmt::format("{}/.penstock-plan-{}.tmp", directory, ::getpid());
    try {
        aio::File file(AT_FDCWD, path, path, {.mode = aio::FileMode::create, .caching = question.caching});
        ::unlink(path.c_str());
        file.reserve(question.file_bytes);
        return file;
    } catch (const Error& error) {
        throw Error(error.code(), fmt::format("{}; the device is measured by a file of {} MiB there", error.what(),
                                              question.file_bytes >> 20));
    }
}

std::vector<aio::File> nameless_files(const DeviceQuestion& question) {
    std::vector<aio::File> files;
    for (const std::string& directory : question.directories)
        files.push_back(nameless_file(nearest_that_is_there(directory), question));
    return files;
}

// Half of the slots read and half write, each file's in their turn.
class TileSource final : public RequestSource {
   public:
    enum class Ways : std::uint8_t { read, write, both };

    TileSource(std::span<const aio::File> files, std::uint64_t file_bytes, Ways ways, bool once) : ways_(ways) {
        BlockPlan plan{.block_bytes = tile_bytes,
                       .file_bytes = std::max<std::uint64_t>(1, file_bytes / tile_bytes) * tile_bytes,
                       .once = once};
        for (const aio::File& file : files) {
            plan.work = BlockWork::read;
            readers_.emplace_back(file, plan);
            plan.work = BlockWork::write;
            writers_.emplace_back(file, plan);
        }
    }
    bool next(std::size_t slot, aio::TransferRequest& request) noexcept override {
        const bool reads = slot % 2 == 0;
        if (ways_ == (reads ? Ways::write : Ways::read)) return false;
        return (reads ? readers_ : writers_)[slot / 2 % readers_.size()].next(slot, request);
    }

   private:
    Ways ways_;
    std::vector<BlockSource> readers_, writers_;  // by file
};

class Prober {
   public:
    using Ways = TileSource::Ways;

    explicit Prober(const DeviceQuestion& question)
        : question_(question),
          files_(nameless_files(question)),
          rig_(files_, {.lease_bytes = std::vector<std::size_t>(2 * tiles_of_each * files_.size(), tile_bytes),
                        .limits = question.limits,
                        .backend = question.backend,
                        .registration = RingRegistration::none}) {
        move(Ways::write, {});  // reading what was never written is no reading
    }

    double bytes_per_second(Ways ways) { return move(ways, question_.seconds).bytes_per_second(); }
    double flush_seconds();
    Contention contention(double both);  // which it gives without compute
    double driver_per_byte() const {
        return moved_.bytes == 0 ? 0 : moved_.thread_seconds / static_cast<double>(moved_.bytes);
    }
    const std::vector<std::string>& notes() const noexcept { return rig_.notes(); }

   private:
    Moved move(Ways ways, std::optional<double> seconds);  // none: over the files once

    const DeviceQuestion& question_;
    const std::vector<aio::File> files_;
    IoRig rig_;
    Moved moved_;  // both ways at once
};

Moved Prober::move(Ways ways, std::optional<double> seconds) {
    TileSource source(files_, question_.file_bytes, ways, !seconds);
    const Moved moved = rig_.run(source, seconds);
    if (ways == Ways::both) {
        moved_.bytes += moved.bytes;
        moved_.thread_seconds += moved.thread_seconds;
    }
    return moved;
}

// What the thread that submits takes of the cores is known by itself: driver_per_byte().
Contention Prober::contention(double both) {
    Contention kept = measure_contention(question_.compute_threads, contention_seconds * question_.seconds, both,
                                         [&](double seconds) { return move(Ways::both, seconds).bytes_per_second(); });
    if (question_.compute_threads >= question_.cores)
        kept.compute = std::min(1.0, kept.compute + kept.device * both * driver_per_byte() / question_.cores);
    return kept;
}

// As a commit: what was written, then a record and its own flush.
double Prober::flush_seconds() {
    std::vector<aio::TransferRequest> requests;
    for (const aio::File& file : files_) requests.push_back({.kind = aio::IoKind::flush, .file = &file});
    for (int copy = 0; copy < 2; ++copy) {
        requests.push_back({.kind = aio::IoKind::write, .file = &files_.front(), .bytes = record_bytes});
        requests.push_back({.kind = aio::IoKind::flush, .file = &files_.front()});
    }
    return rig_.run(requests).seconds;
}

}  // namespace

MeasuredDevice measure_device(const DeviceQuestion& question) {
    using Ways = Prober::Ways;
    Prober prober(question);
    MeasuredDevice measured;
    measured.flush = prober.flush_seconds();
    measured.rates.read = prober.bytes_per_second(Ways::read);
    measured.rates.write = prober.bytes_per_second(Ways::write);
    measured.rates.both = prober.bytes_per_second(Ways::both);
    measured.driver_per_byte = prober.driver_per_byte();
    measured.contention = prober.contention(measured.rates.both);
    measured.notes = prober.notes();
    for (const std::string& directory : question.directories)
        measured.places.push_back(nearest_that_is_there(directory));
    return measured;
}

}  // namespace penstock::zero
