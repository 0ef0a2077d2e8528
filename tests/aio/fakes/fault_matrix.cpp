#include "tests/aio/fakes/fault_matrix.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"
#include "tests/aio/fakes/meddler.h"
#include "tests/aio/fakes/repeatable_backend.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock::aio {
namespace {

constexpr std::size_t block = FaultMatrix::block_bytes;
constexpr std::size_t file_bytes = FaultMatrix::file_bytes;
constexpr int tries = 8;
constexpr std::size_t depth = 16;
// Far more than any run of a right Io takes (the most seen: 1,500 attempts, 700 rounds).
constexpr std::uint64_t most_attempts = 20'000;
constexpr int most_rounds = 20'000;
constexpr std::byte untouched{0x55};

void fill(std::span<std::byte> memory, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        std::memcpy(memory.data() + at, &word, sizeof word);
    }
}

// Where the two first differ within the range, or its end.
std::size_t difference(const std::byte* a, const std::byte* b, std::size_t begin, std::size_t end) {
    return static_cast<std::size_t>(std::mismatch(a + begin, a + end, b + begin).first - a);
}

struct Piece {
    std::size_t begin = 0;
    std::size_t end = 0;
    Meddled transfer;
};

class Run {
   public:
    Run(const Fault& fault, FaultMatrix::Bench& bench, ScratchMemory& memory, IoKind direction, std::uint64_t seed)
        : fault_(fault), bench_(bench), memory_(memory), direction_(direction), seed_(seed), random_(seed) {}

    std::vector<std::string> operator()(Backend& backend, FaultMatrix::Tally& tally);

   private:
    template <typename... Values>
    void complain(fmt::format_string<Values...> format, Values&&... values) {
        complaints_.push_back(fmt::format(format, std::forward<Values>(values)...));
    }
    void prepare();
    void start_all(Io& io, Meddler& meddler);
    void drain(Io& io, FaultyBackend& faulty, Meddler& meddler);
    bool idle_after(Io& io, const FaultyBackend& faulty, Meddler& meddler);
    void examine(const Meddled& transfer);
    void examine_error(const IoError& error, const TransferRequest& request);
    void examine_data();
    void examine_classes(const Io& io);
    void examine_fatal(const FaultyBackend& faulty);
    void examine_counts(const Io& io, const FaultyBackend& faulty);

    const Fault& fault_;
    FaultMatrix::Bench& bench_;
    ScratchMemory& memory_;
    IoKind direction_;
    std::uint64_t seed_;
    std::mt19937_64 random_;
    std::vector<std::unique_ptr<Piece>> pieces_;
    Meddled flush_;
    std::uint64_t errors_ = 0;
    std::vector<std::string> complaints_;
};

std::vector<std::string> Run::operator()(Backend& backend, FaultMatrix::Tally& tally) {
    auto inner = std::make_unique<RepeatableBackend>(backend, 1 + random_() % depth);
    auto owned =
        std::make_unique<FaultyBackend>(std::move(inner), fault_.chances, bench_.file.alignment().offset_bytes, seed_);
    FaultyBackend& faulty = *owned;
    Io io(std::move(owned), draw_limits(random_));
    Meddler meddler(io, random_(), static_cast<int>(random_() % 3 * 20));
    prepare();
    start_all(io, meddler);
    drain(io, faulty, meddler);
    if (direction_ == IoKind::write && random_() % 8 == 0) {  // some: they take most of the time
        io.start(flush_, {.kind = IoKind::flush, .file = &bench_.file});
        drain(io, faulty, meddler);
        examine(flush_);
    }
    for (const auto& piece : pieces_) examine(piece->transfer);
    examine_data();
    examine_classes(io);
    examine_fatal(faulty);
    examine_counts(io, faulty);
    for (const std::string& complaint : meddler.complaints()) complaints_.push_back(complaint);
    tally += {.errors = errors_, .promoted = meddler.promotions(), .struck = faulty.counts()};
    return std::move(complaints_);
}

void Run::prepare() {
    if (direction_ == IoKind::read) {
        std::memset(memory_.data(), static_cast<int>(untouched), file_bytes);
    } else {
        fill(memory_.span(), seed_);
    }
}

void Run::start_all(Io& io, Meddler& meddler) {
    std::size_t at = random_() % 3;
    while (at < file_bytes / block) {
        const std::size_t length = std::min<std::size_t>(1 + random_() % 12, file_bytes / block - at);
        Piece& piece = *pieces_.emplace_back(std::make_unique<Piece>());
        piece.begin = at * block;
        piece.end = (at + length) * block;
        io.start(piece.transfer, {.kind = direction_,
                                  .file = &bench_.file,
                                  .data = memory_.data() + piece.begin,
                                  .offset_bytes = piece.begin,
                                  .bytes = piece.end - piece.begin,
                                  .urgency = draw_urgency(random_, direction_)});
        meddler.add(piece.transfer);
        meddler.meddle();
        at += length + random_() % 3;
    }
    meddler.begins();
}

// An Io that hangs is let go on a sound device, so that it can be destroyed.
void Run::drain(Io& io, FaultyBackend& faulty, Meddler& meddler) {
    if (idle_after(io, faulty, meddler)) return;
    complain("the Io does not come to an end");
    faulty.set_chances({});
    PENSTOCK_CHECK(idle_after(io, faulty, meddler), "seed {}: the Io hangs on a sound device too", seed_);
}

bool Run::idle_after(Io& io, const FaultyBackend& faulty, Meddler& meddler) {
    const std::uint64_t last = faulty.counts().attempts + most_attempts;
    for (int rounds = 0; !io.idle(); ++rounds) {
        if (rounds == most_rounds || faulty.counts().attempts > last) return false;
        io.wait(std::chrono::milliseconds(1));
        meddler.meddle();
    }
    return true;
}

void Run::examine(const Meddled& transfer) {
    if (transfer.dones != 1) complain("done() was called {} times", transfer.dones);
    if (!transfer.error()) return;
    ++errors_;
    examine_error(*transfer.error(), transfer.request());
}

void Run::examine_error(const IoError& error, const TransferRequest& request) {
    const std::string message = error.message();
    if (!fault_.errors.contains(error.errno_value)) complain("not an error of this fault: {}", message);
    if (error.path != bench_.file.path()) complain("another path: {}", message);
    if (error.kind != request.kind) complain("another operation: {}", message);
    if (error.tries < 1 || error.tries > tries) complain("{} tries: {}", error.tries, message);
    if ((error.errno_value == EAGAIN || error.errno_value == EINTR) && error.tries != tries) {
        complain("given up too early: {}", message);
    }
    if (error.kind == IoKind::flush) return;
    const bool within = error.bytes > 0 && error.offset_bytes >= request.offset_bytes &&
                        error.offset_bytes + error.bytes <= request.offset_bytes + request.bytes;
    if (!within) complain("outside its transfer: {}", message);
}

// What was moved without an error is right, and what nobody asked for is as it was.
void Run::examine_data() {
    const bool reading = direction_ == IoKind::read;
    ScratchMemory found(file_bytes);
    ScratchMemory before(file_bytes);
    if (reading) {
        std::memcpy(found.data(), memory_.data(), file_bytes);
        std::memset(before.data(), static_cast<int>(untouched), file_bytes);
    } else {
        const ssize_t count = ::pread(bench_.file.fd(), found.data(), file_bytes, 0);
        PENSTOCK_CHECK(count == static_cast<ssize_t>(file_bytes), "{}: pread gives {}", bench_.file.path(), count);
        std::memcpy(before.data(), bench_.image.data(), file_bytes);
    }
    const std::byte* right = reading ? bench_.image.data() : memory_.data();
    std::size_t end = 0;
    for (const auto& piece : pieces_) {
        if (difference(found.data(), before.data(), end, piece->begin) != piece->begin) {
            complain("bytes that nobody asked for were changed between {} and {}", end, piece->begin);
        }
        end = piece->end;
        const std::size_t at = difference(found.data(), right, piece->begin, piece->end);
        if (!piece->transfer.error() && at != piece->end) complain("wrong data without an error at {}", at);
    }
    if (difference(found.data(), before.data(), end, file_bytes) != file_bytes) {
        complain("bytes that nobody asked for were changed after {}", end);
    }
    if (!reading) std::memcpy(bench_.image.data(), found.data(), file_bytes);
}

// Each transfer is counted once, in the class that it was in at its end.
void Run::examine_classes(const Io& io) {
    for (const Urgency urgency : {Urgency::demand, Urgency::prefetch, Urgency::write_back, Urgency::scrub}) {
        const auto expected = static_cast<std::uint64_t>(std::ranges::count_if(
            pieces_, [&](const auto& piece) { return piece->transfer.request().urgency == urgency; }));
        const std::uint64_t counted = io.statistics().lane(direction_, urgency).transfers.load();
        if (counted != expected) {
            complain("{} transfers of class {} are counted, not {}", counted, static_cast<int>(urgency), expected);
        }
    }
}

void Run::examine_fatal(const FaultyBackend& faulty) {
    for (const FaultyBackend::Fatal& fatal : faulty.fatal()) {
        bool reported = fatal.kind == IoKind::flush && flush_.error().has_value();
        for (const auto& piece : pieces_) {
            const bool hit =
                fatal.kind != IoKind::flush && fatal.offset_bytes >= piece->begin && fatal.offset_bytes < piece->end;
            reported = reported || (hit && piece->transfer.error().has_value());
        }
        if (!reported) complain("a failed {} at {} was not reported", to_string(fatal.kind), fatal.offset_bytes);
    }
}

void Run::examine_counts(const Io& io, const FaultyBackend& faulty) {
    if (faulty.counts().unaligned > 0) {
        complain("{} attempts began or ended at an odd place", faulty.counts().unaligned);
    }
    if (errors_ > 0) return;
    std::uint64_t asked = 0;
    for (const auto& piece : pieces_) asked += piece->end - piece->begin;
    const std::uint64_t counted = io.statistics().total_read_bytes() + io.statistics().total_write_bytes();
    if (counted != asked) complain("{} bytes are counted of {}", counted, asked);
}

File created(const std::string& path, Caching caching) {
    File(AT_FDCWD, path, path, {.mode = FileMode::create}).reserve(file_bytes);
    return File(AT_FDCWD, path, path, {.mode = FileMode::read_write, .caching = caching});
}

}  // namespace

const std::vector<Fault>& faults() {
    static const std::vector<Fault> all = {
        {"none", {}, {}},
        {"short_transfer", {.short_transfer = 50}, {0}},
        {"no_bytes", {.no_bytes = 5}, {0}},
        {"io_error", {.io_error = 5}, {EIO}},
        {"no_space", {.no_space = 10}, {ENOSPC}},
        {"again", {.again = 10, .again_burst = 3}, {EAGAIN}},
        {"again_for_ever", {.again = 5, .again_burst = 1'000'000'000}, {EAGAIN}},
        {"interrupted", {.interrupted = 30}, {EINTR}},
        {"delay", {.delay = 60}, {}},
        {"all",
         {.short_transfer = 20,
          .no_bytes = 1,
          .io_error = 1,
          .no_space = 1,
          .again = 3,
          .again_burst = 2,
          .interrupted = 5,
          .delay = 20},
         {0, EIO, ENOSPC, EAGAIN, EINTR}},
    };
    return all;
}

const std::vector<BackendKind>& fault_backends() {
    static const std::vector<BackendKind> all = {BackendKind::io_uring, BackendKind::libaio, BackendKind::threads};
    return all;
}

IoLimits draw_limits(std::mt19937_64& random) {
    const auto chunk_bytes = static_cast<std::uint32_t>(block << random() % 3);
    const std::uint64_t throttled_bytes = chunk_bytes << random() % 2;
    const std::uint64_t write_back_bytes = throttled_bytes << random() % 3;
    const std::uint64_t prefetch_bytes = chunk_bytes << random() % 3;
    return {.chunk_bytes = chunk_bytes,
            .in_flight = {.read_bytes = prefetch_bytes + (chunk_bytes << random() % 3),
                          .prefetch_bytes = prefetch_bytes,
                          .write_bytes = write_back_bytes << random() % 2,
                          .write_back_bytes = write_back_bytes,
                          .throttled_bytes = throttled_bytes,
                          .scrub_bytes = chunk_bytes,
                          .demand_places = static_cast<std::uint32_t>(random() % 5)},
            .tries = tries};
}

FaultMatrix::Tally& FaultMatrix::Tally::operator+=(const Tally& other) {
    errors += other.errors;
    promoted += other.promoted;
    struck += other.struck;
    return *this;
}

FaultMatrix::Bench::Bench(const std::string& path, Caching caching) : file(created(path, caching)) {
    fill(image.span(), 1);
    const ssize_t count = ::pwrite(file.fd(), image.data(), file_bytes, 0);
    PENSTOCK_CHECK(count == static_cast<ssize_t>(file_bytes), "{}: pwrite gives {}", path, count);
}

FaultMatrix::FaultMatrix(const Fault& fault, BackendKind kind)
    : fault_(fault),
      direct_read_(directory_.file("direct_read"), Caching::direct),
      buffered_read_(directory_.file("buffered_read"), Caching::buffered),
      direct_write_(directory_.file("direct_write"), Caching::direct),
      buffered_write_(directory_.file("buffered_write"), Caching::buffered),
      backend_(open_backend(direct_read_.file.fd(), {.depth = depth, .threads_per_device = 2}, kind).backend) {}

std::vector<std::string> FaultMatrix::run(std::uint64_t seed) {
    const IoKind direction = seed % 2 == 0 ? IoKind::read : IoKind::write;
    const bool direct = seed / 2 % 2 == 0;
    Bench& bench = direction == IoKind::read ? (direct ? direct_read_ : buffered_read_)
                                             : (direct ? direct_write_ : buffered_write_);
    return Run(fault_, bench, memory_, direction, seed)(*backend_, tally_);
}

}  // namespace penstock::aio
