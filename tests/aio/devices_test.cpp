// Several devices behind one Io: queues, bounds and throttles of their own, and places kept for each.
#include "tests/aio/fakes/io_over_manual.h"

#include "aio/words/io_error.h"

#include <unistd.h>

#include <array>
#include <optional>
#include <string>

namespace penstock::aio {
namespace {

// A file on another device than the scratch directory; shared memory is one on nearly every machine.
struct OtherDevice {
    OtherDevice() {
        const char* const place = "/dev/shm";
        if (::access(place, W_OK | X_OK) != 0) return;
        directory.emplace(place);
        const std::string path = directory->file("data");
        file.emplace(AT_FDCWD, path, path, FileOptions{.mode = FileMode::create});
    }
    std::optional<TemporaryDirectory> directory;
    std::optional<File> file;
};

class TwoDevices : public IoOverManual {
   protected:
    void SetUp() override {
        if (!other_.file || other_.file->device() == file_.device()) GTEST_SKIP() << "there is one device only";
    }
    TransferRequest on_other(IoKind kind, std::uint64_t bytes, Urgency urgency) {
        TransferRequest wanted = request(kind, bytes, urgency);
        wanted.file = &*other_.file;
        return wanted;
    }
    std::size_t in_flight_on(const File& file) const {
        std::size_t count = 0;
        for (const Attempt* attempt : backend_->in_flight) count += attempt->fd == file.fd() ? 1 : 0;
        return count;
    }
    OtherDevice other_;
};

TEST_F(TwoDevices, HaveBoundsAndThrottlesOfTheirOwn) {
    build(throttling());
    Counted reading;
    Counted writing_here;
    Counted writing_there;
    io_->start(reading, request(IoKind::read, 64 * kib));
    io_->start(writing_here, request(IoKind::write, 64 * kib, Urgency::write_back));
    io_->start(writing_there, on_other(IoKind::write, 64 * kib, Urgency::write_back));
    io_->poll();
    EXPECT_EQ(in_flight_on(file_), 5U);         // 4 reads, 1 throttled write
    EXPECT_EQ(in_flight_on(*other_.file), 4U);  // not throttled
    wait_to_the_end();
}

TEST_F(TwoDevices, OneThatIsStuckDoesNotStopTheOther) {
    build(bounded(256 * kib, 4 * kib), 8);
    Counted seen;
    io_->start(seen, on_other(IoKind::read, 4 * kib, Urgency::demand));
    wait_to_the_end();
    backend_->automatic = false;
    std::array<Counted, 8> stuck;
    for (Counted& transfer : stuck) io_->start(transfer, request(IoKind::read, 64 * kib));
    io_->poll();
    EXPECT_EQ(in_flight_on(file_), 7U);  // one place is left for the other
    Counted write_back;
    Counted scrub;
    Counted flushing;
    io_->start(write_back, on_other(IoKind::write, 64 * kib, Urgency::write_back));
    io_->start(scrub, on_other(IoKind::read, 64 * kib, Urgency::scrub));
    io_->start(flushing, {.kind = IoKind::flush, .file = &*other_.file});
    for (int i = 0; i < 100 && (!write_back.idle() || !scrub.idle() || !flushing.idle()); ++i) {
        io_->poll();
        ASSERT_EQ(in_flight_on(*other_.file), 1U);
        Attempt* attempt = backend_->in_flight.back();
        backend_->complete(attempt, static_cast<std::int32_t>(attempt->bytes));
        io_->poll();
    }
    EXPECT_EQ(write_back.dones + scrub.dones + flushing.dones, 3);
    EXPECT_EQ(in_flight_on(file_), 7U);
    wait_to_the_end();
}

TEST_F(TwoDevices, TakeTurnsWhenThereIsOnePlaceForBoth) {
    build(bounded(16 * kib, 4 * kib), 1);
    Counted here;
    Counted there;
    here.then = [&] { io_->start(here, request(IoKind::read, 4 * kib)); };
    there.then = [&] { io_->start(there, on_other(IoKind::read, 4 * kib, Urgency::demand)); };
    here.then();
    there.then();
    for (int i = 0; i < 20; ++i) {
        io_->poll();
        ASSERT_EQ(backend_->in_flight.size(), 1U);
        backend_->complete_all();
    }
    EXPECT_GT(here.dones, 5);
    EXPECT_GT(there.dones, 5);
    here.then = there.then = nullptr;
    wait_to_the_end();
}

}  // namespace
}  // namespace penstock::aio
