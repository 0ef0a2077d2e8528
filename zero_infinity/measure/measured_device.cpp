#include "zero_infinity/measure/measured_device.h"

#include "aio/words/error.h"
#include "zero_infinity/measure/busy_cores.h"
#include "zero_infinity/measure/measuring_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <span>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t tile_bytes = 4U << 20;     // about what a run moves at once
constexpr std::size_t tiles_of_each = 4;         // at once, by file and direction
constexpr std::size_t record_bytes = 64U << 10;  // a manifest's
constexpr double contention_seconds = 12;        // for each of another measurement

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

double thread_cpu_seconds() {
    rusage usage = {};
    ::getrusage(RUSAGE_THREAD, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

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

// A drive that compresses gains nothing.
void fill_random(std::span<std::byte> memory) {
    std::mt19937_64 random(memory.size());
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= memory.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        std::memcpy(memory.data() + at, &word, sizeof word);
    }
}

class Prober {
   public:
    explicit Prober(const DeviceQuestion& question);
    ~Prober();

    enum class Work : std::uint8_t { write_once, read, write, both };
    double bytes_per_second(Work work, double seconds);
    double flush_seconds();
    Contention contention(const DeviceQuestion& question, double both);  // which it gives without compute
    double driver_per_byte() const { return moved_ == 0 ? 0 : cpu_seconds_ / static_cast<double>(moved_); }
    std::vector<std::string> notes() const;

   private:
    struct Mover final : aio::Transfer {
        void done() noexcept override { prober->ended(*this); }
        Prober* prober = nullptr;
        std::size_t file = 0;
        aio::IoKind kind = aio::IoKind::read;
        std::byte* data = nullptr;
    };

    void start(Mover& mover) noexcept;
    void ended(Mover& mover) noexcept;
    void finish();

    std::vector<aio::File> files_;
    MeasuringMemory memory_;
    std::string backend_note_;
    std::unique_ptr<aio::Io> io_;
    std::vector<std::unique_ptr<Mover>> movers_;
    std::vector<std::array<std::uint64_t, 2>> next_tile_;  // by file, of reads and of writes
    std::uint64_t tiles_per_file_;
    bool once_ = false;
    bool over_ = true;
    std::uint64_t section_bytes_ = 0;
    std::uint64_t moved_ = 0;
    double cpu_seconds_ = 0;
    std::optional<aio::IoError> error_;
};

Prober::Prober(const DeviceQuestion& question)
    : memory_(2 * tiles_of_each * question.directories.size() * tile_bytes),
      tiles_per_file_(std::max<std::uint64_t>(1, question.file_bytes / tile_bytes)) {
    for (const std::string& directory : question.directories)
        files_.push_back(nameless_file(nearest_that_is_there(directory), question));
    next_tile_.resize(files_.size());
    fill_random(memory_.bytes());
    const std::size_t count = 2 * tiles_of_each * files_.size();
    aio::ChosenBackend chosen = aio::open_backend(files_.front().fd(), {}, question.backend);
    backend_note_ = chosen.note;
    io_ = std::make_unique<aio::Io>(std::move(chosen.backend), question.limits);
    for (std::size_t i = 0; i < count; ++i) {
        auto mover = std::make_unique<Mover>();
        mover->prober = this;
        mover->file = i % files_.size();
        mover->kind = i < count / 2 ? aio::IoKind::read : aio::IoKind::write;
        mover->data = memory_.bytes().data() + i * tile_bytes;
        movers_.push_back(std::move(mover));
    }
}

Prober::~Prober() {
    over_ = true;
    io_.reset();
    if (std::any_of(movers_.begin(), movers_.end(), [](const auto& mover) { return mover->orphaned(); }))
        memory_.orphan();
}

void Prober::start(Mover& mover) noexcept {
    const bool reads = mover.kind == aio::IoKind::read;
    std::uint64_t& next = next_tile_[mover.file][reads ? 0 : 1];
    if (over_ || (once_ && next == tiles_per_file_)) return;
    io_->start(mover, {.kind = mover.kind,
                       .file = &files_[mover.file],
                       .data = mover.data,
                       .offset_bytes = next++ % tiles_per_file_ * tile_bytes,
                       .bytes = tile_bytes,
                       .urgency = reads ? aio::Urgency::prefetch : aio::Urgency::write_back});
}

void Prober::ended(Mover& mover) noexcept {
    if (mover.error()) {
        if (!error_) error_ = mover.error();
        over_ = true;
        return;
    }
    section_bytes_ += mover.request().bytes;
    start(mover);
}

void Prober::finish() {
    over_ = true;
    if (const auto stuck = io_->finish_all()) throw Error(ExitCode::storage, stuck->message());
    if (error_) throw Error(ExitCode::storage, error_->message());
}

double Prober::bytes_per_second(Work work, double seconds) {
    over_ = false;
    once_ = work == Work::write_once;
    section_bytes_ = 0;
    std::fill(next_tile_.begin(), next_tile_.end(), std::array<std::uint64_t, 2>{});
    const auto wanted = [&](aio::IoKind kind) {
        return work == Work::both || (kind == aio::IoKind::read) == (work == Work::read);
    };
    const double cpu_start = thread_cpu_seconds();
    const auto start_time = Clock::now();
    for (const auto& mover : movers_)
        if (wanted(mover->kind)) start(*mover);
    while (!over_ && !io_->idle()) {
        if (const auto stuck = io_->advance(std::chrono::milliseconds(100)))
            throw Error(ExitCode::storage, stuck->message());
        if (!once_ && seconds_since(start_time) >= seconds) over_ = true;
    }
    finish();
    const double elapsed = seconds_since(start_time);
    if (work == Work::both) {
        cpu_seconds_ += thread_cpu_seconds() - cpu_start;
        moved_ += section_bytes_;
    }
    return static_cast<double>(section_bytes_) / elapsed;
}

// What the thread that submits takes of the cores is known by itself: driver_per_byte().
Contention Prober::contention(const DeviceQuestion& question, double both) {
    Contention kept = measure_contention(question.compute_threads, contention_seconds * question.seconds, both,
                                         [&](double seconds) { return bytes_per_second(Work::both, seconds); });
    if (question.compute_threads >= question.cores)
        kept.compute = std::min(1.0, kept.compute + kept.device * both * driver_per_byte() / question.cores);
    return kept;
}

// As a commit: what was written, then a record and its own flush.
double Prober::flush_seconds() {
    struct Flush final : aio::Transfer {
        void done() noexcept override {}
    } flush;
    const auto run = [&](aio::Transfer& transfer, const aio::TransferRequest& request) {
        io_->start(transfer, request);
        if (const auto stuck = io_->finish(transfer)) throw Error(ExitCode::storage, stuck->message());
        if (transfer.error()) throw Error(ExitCode::storage, transfer.error()->message());
    };
    const auto start_time = Clock::now();
    for (const aio::File& file : files_) run(flush, {.kind = aio::IoKind::flush, .file = &file});
    for (int copy = 0; copy < 2; ++copy) {
        run(flush, {.kind = aio::IoKind::write,
                    .file = &files_.front(),
                    .data = movers_.front()->data,
                    .bytes = record_bytes});
        run(flush, {.kind = aio::IoKind::flush, .file = &files_.front()});
    }
    return seconds_since(start_time);
}

std::vector<std::string> Prober::notes() const {
    std::vector<std::string> notes = memory_.notes();
    if (!backend_note_.empty()) notes.push_back(backend_note_);
    for (const aio::File& file : files_)
        if (!file.direct()) notes.push_back(file.fallback());
    return notes;
}

}  // namespace

MeasuredDevice measure_device(const DeviceQuestion& question) {
    Prober prober(question);
    prober.bytes_per_second(Prober::Work::write_once, 0);  // reading what was never written is no reading
    MeasuredDevice measured;
    measured.flush = prober.flush_seconds();
    measured.rates.read = prober.bytes_per_second(Prober::Work::read, question.seconds);
    measured.rates.write = prober.bytes_per_second(Prober::Work::write, question.seconds);
    measured.rates.both = prober.bytes_per_second(Prober::Work::both, question.seconds);
    measured.driver_per_byte = prober.driver_per_byte();
    measured.contention = prober.contention(question, measured.rates.both);
    measured.notes = prober.notes();
    for (const std::string& directory : question.directories)
        measured.places.push_back(nearest_that_is_there(directory));
    return measured;
}

}  // namespace penstock::zero
