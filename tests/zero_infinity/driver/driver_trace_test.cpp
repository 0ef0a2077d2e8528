// What a recorder has seen of a driver's step is what went on.
#include "pinned_pool/region.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/driver/driver_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

namespace penstock::testing {
namespace {

using zero::TraceLane;
using zero::TraceSpan;
using zero::TraceThread;

std::uint64_t bytes_of(const zero::TraceRecorder& recorder, TraceLane lane) {
    std::uint64_t sum = 0;
    for (const TraceSpan& span : recorder.spans(TraceThread::driver)) sum += span.lane == lane ? span.bytes : 0;
    return sum;
}

std::uint64_t count_of(const zero::TraceRecorder& recorder, TraceThread thread, TraceLane lane) {
    const auto spans = recorder.spans(thread);
    return static_cast<std::uint64_t>(
        std::count_if(spans.begin(), spans.end(), [&](const TraceSpan& span) { return span.lane == lane; }));
}

// Of each unit and tile: its writes begin after its update has ended, its states' read ends before that begins.
void expect_updates_between_reads_and_writes(const zero::TraceRecorder& recorder, const zero::ModelLayout& layout) {
    for (const TraceSpan& update : recorder.spans(TraceThread::compute)) {
        if (update.lane != TraceLane::update) continue;
        std::uint64_t reads = 0, writes = 0;
        for (const TraceSpan& span : recorder.spans(TraceThread::driver)) {
            if (span.unit != update.unit || span.tile != update.tile) continue;
            if (span.lane == TraceLane::write) {
                ++writes;
                EXPECT_GE(span.begin_ns, update.begin_ns) << "unit " << update.unit << " tile " << update.tile;
                EXPECT_GE(span.end_ns, update.end_ns);
            } else if (span.lane == TraceLane::read && span.object == layout.objects(update.unit).states) {
                ++reads;
                EXPECT_LE(span.end_ns, update.begin_ns) << "unit " << update.unit << " tile " << update.tile;
            }
        }
        EXPECT_EQ(reads, 1U);
        EXPECT_EQ(writes, 2U);
    }
}

// Some read of each weight that a visit needs has ended before compute begins with it.
void expect_weights_before_compute(const zero::TraceRecorder& recorder, const zero::ModelLayout& layout) {
    for (const TraceSpan& visit : recorder.spans(TraceThread::compute)) {
        if (visit.lane != TraceLane::compute) continue;
        for (std::uint32_t tile = 0; tile < layout.unit(visit.unit).tile_count(); ++tile) {
            const auto reads = recorder.spans(TraceThread::driver);
            EXPECT_TRUE(std::any_of(reads.begin(), reads.end(),
                                    [&](const TraceSpan& span) {
                                        return span.lane == TraceLane::read &&
                                               span.object == layout.objects(visit.unit).weights && span.tile == tile &&
                                               span.end_ns <= visit.begin_ns;
                                    }))
                << "unit " << visit.unit;
        }
    }
}

TEST(DriverTrace, ShowsEveryByteThatIsReadAndWrittenAndInWhatOrder) {
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        const TemporaryDirectory parent;
        zero::TraceRecorder recorder(10000);
        DriverRig rig(parent / "swap", {.device = device, .trace = &recorder});
        const std::uint64_t read = rig.io().statistics().total_read_bytes();
        const std::uint64_t written = rig.io().statistics().total_write_bytes();
        recorder.begin_step(1);
        EXPECT_EQ(rig.wrong_weights(zero::Pass::training, 0), 0U);
        rig.update(1);
        rig.driver().end_update();
        const std::uint64_t tiles_written = rig.io().statistics().total_write_bytes();
        rig.driver().commit({{"step", "1"}});
        recorder.end_steps();
        const zero::ModelLayout& layout = rig.layout();
        EXPECT_EQ(rig.wrong_weights(zero::Pass::inference, 1), 0U);
        const std::uint64_t all = rig.io().statistics().total_read_bytes();
        rig.driver().stop();
        EXPECT_LT(bytes_of(recorder, TraceLane::read), all - read);  // the second pass was not recorded
        EXPECT_EQ(bytes_of(recorder, TraceLane::write), tiles_written - written);
        EXPECT_EQ(count_of(recorder, TraceThread::compute, TraceLane::update), layout.tiles().size());
        EXPECT_EQ(count_of(recorder, TraceThread::driver, TraceLane::commit), 1U);
        EXPECT_EQ(count_of(recorder, TraceThread::driver, TraceLane::copy_in) > 0, device != zero::DeviceKind::cpu);
        expect_updates_between_reads_and_writes(recorder, layout);
        expect_weights_before_compute(recorder, layout);
        for (const TraceThread thread : {TraceThread::compute, TraceThread::driver})
            for (const TraceSpan& span : recorder.spans(thread)) ASSERT_GE(span.end_ns, span.begin_ns);
    }
}

TEST(DriverTrace, ReadsAreThoseOfTheStepToTheByte) {
    const TemporaryDirectory parent;
    zero::TraceRecorder recorder(10000);
    DriverRig rig(parent / "swap", {.trace = &recorder});
    const std::uint64_t read = rig.io().statistics().total_read_bytes();
    recorder.begin_step(1);
    EXPECT_EQ(rig.wrong_weights(zero::Pass::training, 0), 0U);
    rig.update(1);
    rig.driver().commit({{"step", "1"}});
    rig.driver().stop();
    EXPECT_EQ(bytes_of(recorder, TraceLane::read), rig.io().statistics().total_read_bytes() - read);
}

// Who reads or writes a tile by itself waits for it, and for no commit.
TEST(DriverTrace, ATileThatIsReadOrWrittenByItselfIsNoWaitForACommit) {
    const TemporaryDirectory parent;
    zero::TraceRecorder recorder(10000);
    DriverRig rig(parent / "swap", {.trace = &recorder});
    const zero::ModelLayout& layout = rig.layout();
    const store::TileId tile{.object = *layout.objects(0).weights, .tile = 0};
    pool::Region memory(1U << 20, 1, pool::Registration::none);
    const std::span<std::byte> bytes{memory.data(), rig.store().extent_bytes(tile)};
    recorder.begin_step(1);
    rig.driver().read(tile, bytes);
    rig.driver().write(tile, bytes);
    EXPECT_EQ(count_of(recorder, TraceThread::compute, TraceLane::wait_tiles), 2U);
    EXPECT_EQ(count_of(recorder, TraceThread::compute, TraceLane::wait_commit), 0U);
    rig.driver().commit({{"step", "1"}});
    rig.driver().stop();
    EXPECT_EQ(count_of(recorder, TraceThread::compute, TraceLane::wait_commit), 1U);
}

}  // namespace
}  // namespace penstock::testing
