// Our side of a comparison: a real Io over leases of a real pool, kept going by transfers that start again.
#pragma once

#include "aio/io.h"
#include "aio/words/io_error.h"
#include "bench/harness/cpu_time.h"
#include "pinned_pool/pinned_pool.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::aio {
class File;
}

namespace penstock::bench {

class Interruption;

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

// Whether memory and file are registered with the ring, where the backend takes them.
enum class RingRegistration : std::uint8_t { wanted, none };

struct RigOptions {
    std::vector<std::size_t> lease_bytes;  // one transfer and one exact lease each
    aio::IoLimits limits;
    std::optional<aio::BackendKind> backend;
    RingRegistration registration = RingRegistration::wanted;
};

// Bounds under which `in_flight_bytes` of one direction and class are in flight, reads or writes, and nothing throttles
// them: what fio's depth means.
aio::IoLimits plain_limits(std::uint32_t block_bytes, std::uint64_t in_flight_bytes);

// Owned by one thread. Everything is set up by the constructor: pool (huge pages), random bytes in it, ring,
// registration of memory and file, where the backend takes them.
class IoRig {
   public:
    // `file` outlives the rig. Throws Error (does_not_fit, storage).
    IoRig(const aio::File& file, const RigOptions& options);
    ~IoRig();
    IoRig(const IoRig&) = delete;
    IoRig& operator=(const IoRig&) = delete;

    // Starts every transfer, restarts each one that ends with what the source says next until `seconds` are over (none:
    // until the source has nothing more), then waits for what still runs. Counts from the first start to the last end.
    // Throws Error: storage (an I/O error, a stuck device), interrupted.
    Moved run(RequestSource& source, std::optional<double> seconds, Interruption& stop);

    std::span<std::byte> memory(std::size_t slot) const noexcept { return leases_[slot].span(); }
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
    void register_all(const aio::File& file);
    std::chrono::nanoseconds start_what_is_due() noexcept;
    void start(Mover& mover) noexcept;
    void ended(Mover& mover) noexcept;

    std::unique_ptr<pool::PinnedPool> pool_;
    std::vector<pool::Lease> leases_;
    std::vector<std::unique_ptr<Mover>> movers_;
    std::unique_ptr<aio::Io> io_;
    bool registered_memory_ = false;
    bool registered_file_ = false;
    std::vector<std::string> notes_;
    Section section_;
};

}  // namespace penstock::bench
