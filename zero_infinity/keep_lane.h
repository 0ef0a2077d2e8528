// Copies generations of the store into snapshots of their own while training goes on: one copy at a time.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/keep.h"
#include "zero_infinity/unit.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

// Name of the budget's use that copies take their memory from, and the bytes it must have: two of the longest extents.
inline constexpr const char* keep_use = "keep";
std::uint64_t keep_bytes(const std::vector<UnitLayout>& units, const StateFormat& format);

// What became of a copy.
struct KeptCopy {
    std::string path;
    std::uint64_t bytes = 0;             // copied
    std::optional<std::string> problem;  // why there is no snapshot; the store is not harmed by it
};

struct KeepProgress {
    bool under_way = false;
    std::uint64_t copied_bytes = 0;
    std::uint64_t total_bytes = 0;
};

struct KeepLaneParts {
    Io* io = nullptr;
    TensorStore* store = nullptr;
    Caching caching = Caching::direct;
    std::string job;  // owner of the snapshots' directories
    Lease memory;     // of keep_bytes(); empty: begin() is never called
};

// On the driver's thread.
class KeepLane {
   public:
    explicit KeepLane(KeepLaneParts parts) : parts_(std::move(parts)) {}
    ~KeepLane();

    // Begins to copy the newest committed generation into the new directory `path`; makes those above it. Polls the Io
    // for some milliseconds. What cannot be begun has ended with a problem. REQUIRES: idle(), memory, no update and no
    // commit under way.
    void begin(const std::string& path);
    void stop() noexcept;  // the copy ends soon, with a problem
    bool idle() const noexcept { return !keeper_ || keeper_->finished(); }
    KeepProgress progress() const noexcept;

    // Once for each copy that has ended.
    std::optional<KeptCopy> take_ended();

   private:
    KeepLaneParts parts_;
    std::string path_;
    std::unique_ptr<StoreDirectory> directory_;  // outlives the store that the keeper holds
    std::unique_ptr<Keeper> keeper_;
    std::optional<KeptCopy> refused_;
};

}  // namespace penstock
