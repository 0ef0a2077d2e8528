// An Io whose device is the test: what the tests of io*.cpp and device_queue.cpp share.
#pragma once

#include "aio/file.h"
#include "aio/io.h"
#include "aio/words/io_error.h"
#include "tests/aio/fakes/manual_backend.h"
#include "tests/aio/fakes/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock::aio {

inline constexpr std::uint32_t kib = 1024;

// The same bound for everything, in which one chunk is kept for scrub.
inline IoLimits bounded(std::uint64_t bytes, std::uint32_t chunk_bytes, int tries = 8) {
    return {.chunk_bytes = chunk_bytes,
            .in_flight = {.read_bytes = bytes,
                          .prefetch_bytes = bytes - chunk_bytes,
                          .write_bytes = bytes,
                          .write_back_bytes = bytes,
                          .throttled_bytes = bytes,
                          .scrub_bytes = chunk_bytes},
            .tries = tries};
}

struct Counted : Transfer {
    std::function<void()> then;
    int dones = 0;
    void done() noexcept override {
        ++dones;
        if (then) then();
    }
};

// Writes of 4 KiB: four in flight, one when throttled.
inline IoLimits throttling() {
    IoLimits limits = bounded(16 * kib, 4 * kib);
    limits.in_flight.throttled_bytes = 4 * kib;
    limits.in_flight.calm = std::chrono::milliseconds(10);
    return limits;
}

class IoOverManual : public ::testing::Test {
   protected:
    IoOverManual() : path_(directory_.file("data")), file_(AT_FDCWD, path_, path_, {.mode = FileMode::create}) {}

    void build(IoLimits limits, std::size_t depth = 16) {
        auto owned = std::make_unique<ManualBackend>(depth);
        backend_ = owned.get();
        io_ = std::make_unique<Io>(std::move(owned), limits);
    }
    TransferRequest request(IoKind kind, std::uint64_t bytes, Urgency urgency = Urgency::demand,
                            std::uint64_t offset = 0) {
        return {.kind = kind,
                .file = &file_,
                .data = memory_.data(),
                .offset_bytes = offset,
                .bytes = bytes,
                .urgency = urgency};
    }
    TransferRequest flush() { return {.kind = IoKind::flush, .file = &file_}; }
    std::vector<std::uint64_t> offsets() const {
        std::vector<std::uint64_t> all;
        for (const Attempt* attempt : backend_->in_flight) all.push_back(attempt->offset_bytes);
        return all;
    }

    std::size_t in_flight(IoKind kind) const {
        std::size_t count = 0;
        for (const Attempt* attempt : backend_->in_flight) count += attempt->kind == kind ? 1 : 0;
        return count;
    }
    void complete_all_of(IoKind kind) {
        for (std::size_t i = backend_->in_flight.size(); i-- > 0;) {
            Attempt* attempt = backend_->in_flight[i];
            if (attempt->kind == kind) backend_->complete(attempt, static_cast<std::int32_t>(attempt->bytes));
        }
    }
    // From now on the device ends what it is given, until all is done.
    void wait_to_the_end() {
        backend_->automatic = true;
        EXPECT_FALSE(io_->finish_all().has_value());
    }

    TemporaryDirectory directory_;
    std::string path_;
    File file_;
    ScratchMemory memory_{256 * kib};
    ManualBackend* backend_ = nullptr;
    std::unique_ptr<Io> io_;
};

}  // namespace penstock::aio
