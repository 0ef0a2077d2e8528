// What the bounds and the throttle are for, in virtual time: a demand read beside write-back on a simulated device. The
// same numbers on every machine, so they are compared as numbers. The control runs without the throttle.
#include "aio/chunk.h"
#include "aio/file.h"
#include "aio/io.h"
#include "aio/words/io_error.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/aio/fakes/simulated_backend.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <random>

namespace penstock::aio {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::uint64_t mib = 1 << 20;
constexpr milliseconds run_time{2000};

// Like a virtual disk that was measured: 4.3 GB/s reads, 9.8 GB/s writes, 1 MiB read alone in 0.6 ms, and reads suffer
// beside writes.
DeviceModel disk(std::size_t channels = 2) {
    return {
        .read_bytes_per_second = 4.3e9, .write_bytes_per_second = 9.8e9, .channels = channels, .mixed_penalty = 1.0};
}

struct Again : Transfer {
    std::function<void()> then;
    void done() noexcept override {
        if (then) then();
    }
};

// Time is virtual and the simulated files carry no bytes, so the memory may be shared by all.
class Scene {
   public:
    explicit Scene(const IoLimits& limits, const DeviceModel& model = disk())
        : file_(AT_FDCWD, path_, path_, {.mode = FileMode::create}) {
        auto owned = std::make_unique<SimulatedBackend>(std::vector{model}, 64);
        simulated = &*owned;
        io.emplace(std::move(owned), limits);
        begin = simulated->now();
    }
    bool over() const { return simulated->now() - begin >= run_time; }
    void start(Transfer& transfer, IoKind kind, Urgency urgency, std::uint64_t bytes) {
        io->start(transfer, {.kind = kind, .file = &file_, .data = memory_.data(), .bytes = bytes, .urgency = urgency});
    }
    const LaneStatistics& lane(IoKind kind, Urgency urgency) const { return io->statistics().lane(kind, urgency); }

    SimulatedBackend* simulated = nullptr;
    std::optional<Io> io;
    SimulatedBackend::Time begin;

   private:
    TemporaryDirectory directory_;
    std::string path_ = directory_.file("data");
    File file_;
    ScratchMemory memory_{8 * mib};
};

struct Figures {
    nanoseconds read_p99{0};
    double write_bytes_per_second = 0;
    std::uint64_t throttled = 0;
};

enum class Reader : std::uint8_t { absent, present };

// Write-back never runs dry; every 5 ms somebody needs 1 MiB (200 MB/s).
Figures demand_beside_write_back(const IoLimits& limits, Reader wanted = Reader::present,
                                 const DeviceModel& model = disk()) {
    Scene scene(limits, model);
    std::array<Again, 32> writers;
    for (Again& writer : writers) {
        writer.then = [&] {
            if (!scene.over()) scene.start(writer, IoKind::write, Urgency::write_back, mib);
        };
        writer.then();
    }
    Again reader;
    for (auto next = scene.begin; !scene.over(); next += milliseconds(5)) {
        if (wanted == Reader::present && reader.idle()) scene.start(reader, IoKind::read, Urgency::demand, mib);
        while (scene.simulated->now() < next + milliseconds(5))
            scene.io->wait(next + milliseconds(5) - scene.simulated->now());
    }
    EXPECT_FALSE(scene.io->finish_all().has_value());
    const std::chrono::duration<double> time = scene.simulated->now() - scene.begin;
    return {.read_p99 = scene.lane(IoKind::read, Urgency::demand).latency.snapshot().quantile(0.99),
            .write_bytes_per_second =
                static_cast<double>(scene.lane(IoKind::write, Urgency::write_back).bytes.load()) / time.count(),
            .throttled = scene.io->statistics().throttled.load()};
}

// Sixteen blocks of write-back in flight, as a benchmark would have them.
IoLimits deep() {
    IoLimits limits;
    limits.in_flight.write_bytes = 17 * mib;
    limits.in_flight.write_back_bytes = 16 * mib;
    limits.in_flight.throttled_bytes = 2 * mib;  // of less than this model of a disk wants
    return limits;
}

IoLimits without_throttle() {
    IoLimits limits = deep();
    limits.in_flight.throttled_bytes = limits.in_flight.write_back_bytes;
    return limits;
}

TEST(Throttle, BringsADemandReadBackSoonerThanTheSameLoadWithoutIt) {
    const Figures with = demand_beside_write_back(deep());
    const Figures without = demand_beside_write_back(without_throttle());
    RecordProperty("read_p99_us_with", static_cast<int>(with.read_p99.count() / 1000));
    RecordProperty("read_p99_us_without", static_cast<int>(without.read_p99.count() / 1000));
    EXPECT_LE(with.read_p99.count() * 10, without.read_p99.count() * 6);
    EXPECT_GE(with.write_bytes_per_second, without.write_bytes_per_second * 0.9);
    EXPECT_GT(with.throttled, 0U);
}

TEST(Throttle, DoesNotSlowWriteBackThatIsAlone) {
    const Figures alone = demand_beside_write_back(deep(), Reader::absent);
    const Figures without = demand_beside_write_back(without_throttle(), Reader::absent);
    EXPECT_EQ(alone.write_bytes_per_second, without.write_bytes_per_second);
    EXPECT_EQ(alone.throttled, 0U);
}

// With a calm that ends before the next read comes, write-back gets the time in between, on a device that needs more in
// flight than the throttle lets through.
TEST(Throttle, GivesTheTimeAfterTheCalmToWriteBack) {
    IoLimits hasty = deep();
    hasty.in_flight.calm = milliseconds(1);
    const Figures between = demand_beside_write_back(hasty, Reader::present, disk(4));
    const Figures held = demand_beside_write_back(deep(), Reader::present, disk(4));
    EXPECT_GT(between.write_bytes_per_second, held.write_bytes_per_second * 1.1);
    EXPECT_GT(between.throttled, 100U);  // each read anew
    EXPECT_LT(held.throttled, 10U);
}

TEST(Throttle, IsTheSameToTheNanosecondEachTime) {
    const Figures first = demand_beside_write_back({});
    const Figures second = demand_beside_write_back({});
    EXPECT_EQ(first.read_p99, second.read_p99);
    EXPECT_EQ(first.write_bytes_per_second, second.write_bytes_per_second);
}

// ---------------------------------------------------------------- bounds

struct InFlight {
    std::array<std::uint64_t, urgency_count> read{};
    std::array<std::uint64_t, urgency_count> write{};
};

InFlight in_flight(const SimulatedBackend& simulated) {
    InFlight now;
    for (const Attempt* attempt : simulated.in_flight()) {
        const auto& chunk = static_cast<const Chunk&>(*attempt);
        auto& lane = chunk.kind == IoKind::read ? now.read : now.write;
        lane[static_cast<std::size_t>(chunk.urgency)] += chunk.bytes;
    }
    return now;
}

TEST(Throttle, BoundsHoldAtEveryMomentOfARandomLoadAndEverythingEnds) {
    const InFlightLimits limits;
    for (const std::uint64_t seed : {1, 2, 3}) {
        Scene scene(IoLimits{});
        std::mt19937_64 random(seed);
        std::array<Again, 40> transfers;
        InFlight most;
        for (int round = 0; round < 2000; ++round) {
            for (Again& transfer : transfers) {
                if (!transfer.idle() || random() % 8 != 0) continue;
                const IoKind kind = random() % 2 == 0 ? IoKind::read : IoKind::write;
                const std::array<Urgency, 3> classes = {
                    Urgency::demand, kind == IoKind::read ? Urgency::prefetch : Urgency::write_back, Urgency::scrub};
                scene.start(transfer, kind, classes[random() % 3], (1 + random() % 2000) * 4096 % (8 * mib) + 4096);
            }
            scene.io->wait(std::chrono::microseconds(random() % 2000));
            const InFlight now = in_flight(*scene.simulated);
            EXPECT_LE(now.read[0] + now.read[1] + now.read[3], limits.read_bytes);
            EXPECT_LE(now.read[1], limits.prefetch_bytes);
            EXPECT_LE(now.write[0] + now.write[2] + now.write[3], limits.write_bytes);
            EXPECT_LE(now.write[2], limits.write_back_bytes);
            // Where its direction was idle one chunk of scrub is let through beside the other direction's.
            EXPECT_LE(now.read[3] + now.write[3], 2 * limits.scrub_bytes);
            for (std::size_t i = 0; i < urgency_count; ++i) {
                most.read[i] = std::max(most.read[i], now.read[i]);
                most.write[i] = std::max(most.write[i], now.write[i]);
            }
        }
        EXPECT_FALSE(scene.io->finish_all().has_value());
        // The load was heavy enough to reach the bounds, or this has shown nothing.
        EXPECT_GT(most.read[0], limits.read_bytes - mib);
        EXPECT_GT(most.read[1], limits.prefetch_bytes - mib);
        EXPECT_GT(most.write[2], limits.throttled_bytes - mib);
        EXPECT_GT(most.write[3] + most.read[3], 0U);
    }
}

// ---------------------------------------------------------------- statistics

TEST(IoStatisticsInVirtualTime, TimesAreExactUpToTheirBuckets) {
    Scene scene(IoLimits{});
    Again first;
    Again second;
    // One chunk on one of two channels.
    const nanoseconds round(static_cast<std::int64_t>(80e3 + 1e9 * mib * 2 / 4.3e9));
    scene.start(first, IoKind::read, Urgency::demand, 8 * mib);
    scene.start(second, IoKind::read, Urgency::demand, mib);
    EXPECT_FALSE(scene.io->finish_all().has_value());
    const LaneStatistics& lane = scene.lane(IoKind::read, Urgency::demand);
    EXPECT_EQ(lane.transfers.load(), 2U);
    EXPECT_EQ(lane.attempts.load(), 9U);
    EXPECT_EQ(lane.bytes.load(), 9 * mib);
    EXPECT_EQ(lane.errors.load(), 0U);
    // Eight chunks on two channels end after four rounds. The second transfer's chunk is issued after the first round,
    // into the place that came free, and served fifth.
    EXPECT_EQ(lane.latency.snapshot().max(), 5 * round);
    EXPECT_EQ(lane.latency.snapshot().mean(), (4 * round + 5 * round) / 2);
    EXPECT_EQ(lane.wait.snapshot().max(), round);
    EXPECT_EQ(lane.wait.snapshot().mean(), round / 2);
    EXPECT_EQ(lane.device.snapshot().count(), 9U);
    EXPECT_EQ(lane.device.snapshot().max(), 4 * round);
    EXPECT_EQ(lane.device.snapshot().mean(), (2 * (1 + 2 + 3 + 4) + 4) * round / 9);
}

}  // namespace
}  // namespace penstock::aio
