// A real Io over leases of a real pool, kept going by transfers that start again: what measures devices, for a plan and
// for the bench.
#pragma once

#include "aio/backend.h"
#include "aio/file.h"
#include "aio/io.h"
#include "zero_infinity/measure/measuring_memory.h"
#include "zero_infinity/measure/stopwatch.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

// Says what each of the rig's transfers does next.
class RequestSource {
   public:
    virtual ~RequestSource() = default;
    // Fills everything but `data`; false: this slot has nothing more to do. Called from done(): short, no I/O.
    virtual bool next(std::size_t slot, aio::TransferRequest& request) noexcept = 0;
    // A slot whose next() said no for now only, and when to ask it again.
    struct Later {
        std::size_t slot = 0;
        std::chrono::steady_clock::time_point at;
    };
    virtual std::optional<Later> later() const noexcept { return std::nullopt; }
};

// Whether memory and files are registered with the ring, where the backend takes them.
enum class RingRegistration : std::uint8_t { wanted, none };

struct RigOptions {
    std::vector<std::size_t> lease_bytes;  // one transfer and one exact lease each
    aio::IoLimits limits = {};
    std::optional<aio::BackendKind> backend = {};
    RingRegistration registration = RingRegistration::wanted;
    std::string setting = {};           // what makes the leases smaller, for the refusal
    std::function<void()> asking = {};  // ten times a second: throws where the measurement is to stop
};

// `in_flight_bytes` in blocks, of one direction and class, reads or writes, under bounds where nothing throttles them:
// what fio's depth means.
RigOptions plain_rig(std::uint32_t block_bytes, std::uint64_t in_flight_bytes);

// Owned by one thread. Everything is set up by the constructor: pool (huge pages), random bytes in it, ring,
// registration of memory and files, where the backend takes them.
class IoRig {
   public:
    // The files outlive the rig. Throws Error (does_not_fit, storage).
    IoRig(std::span<const aio::File> files, const RigOptions& options);
    IoRig(const aio::File& file, const RigOptions& options) : IoRig({&file, 1}, options) {}
    ~IoRig();
    IoRig(const IoRig&) = delete;
    IoRig& operator=(const IoRig&) = delete;

    // Starts every transfer, restarts each one that ends with what the source says next until `seconds` are over (none:
    // until the source has nothing more), then waits for what still runs. Counts from the first start to the last end.
    // Throws Error: storage (an I/O error, a stuck device), and what RigOptions::asking throws.
    Moved run(RequestSource& source, std::optional<double> seconds = {});
    // The requests one after the other, each with the first lease.
    Moved run(std::span<const aio::TransferRequest> requests);

    std::size_t slots() const noexcept { return movers_.size(); }
    std::span<std::byte> memory(std::size_t slot) const noexcept { return memory_.bytes(slot); }
    aio::Io& io() noexcept { return *io_; }
    bool registered_memory() const noexcept { return registered_memory_; }
    bool registered_file() const noexcept { return registered_file_; }
    // Lines to note: huge pages not given, a backend passed over, a registration refused.
    const std::vector<std::string>& notes() const noexcept { return notes_; }

   private:
    struct Mover;
    struct Section {  // what run() measures
        RequestSource* source = nullptr;
        bool over = false;
        std::uint64_t bytes = 0;
        std::size_t running = 0;
        std::optional<aio::IoError> error;
    };
    void register_all(std::span<const aio::File> files);
    std::chrono::nanoseconds start_what_is_due() noexcept;
    void start(Mover& mover) noexcept;
    void ended(Mover& mover) noexcept;

    MeasuringMemory memory_;
    const std::function<void()> asking_;
    std::vector<std::unique_ptr<Mover>> movers_;
    std::unique_ptr<aio::Io> io_;
    bool registered_memory_ = false;
    bool registered_file_ = false;
    std::vector<std::string> notes_;
    Section section_;
};

}  // namespace penstock::zero
