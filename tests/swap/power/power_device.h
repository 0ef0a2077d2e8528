// A fake of all devices of a machine with a volatile write cache: writes are seen by reads at once, but only what was
// flushed, or written with O_DSYNC, survives a power cut. Without the flush in a commit the tests above it must fail.
//
// What is in flight together it carries out in an order of its own, some of it while the rest waits, as drives do: only
// what had come back before a flush was submitted is sure to be covered by it. When the power fails, each sector of all
// writes in flight may be there.
#pragma once

#include "aio/backend.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {

// What of the unflushed writes a cut leaves on disk.
enum class Loss : std::uint8_t {
    everything,      // none of them
    random_sectors,  // any subset, torn at 512 bytes
    nothing_at_all,  // all of them: a killed process instead of a power cut
};

// How what is in flight together is carried out.
enum class InFlight : std::uint8_t { reordered, as_submitted };

// Works on the real files by their paths. Outlives the backends on it. One thread.
class PowerDevice {
   public:
    explicit PowerDevice(std::uint64_t seed, InFlight order = InFlight::reordered) : random_(seed), order_(order) {}

    std::unique_ptr<aio::Backend> backend();

    // Each attempt may be answered instead of carried out: a result of bytes or -errno.
    using Hook = std::function<std::optional<std::int32_t>(aio::Attempt&, const std::string& path)>;
    Hook hook;
    bool flushes_do_nothing = false;      // a drive that lies
    bool synchronous_writes_lie = false;  // O_DSYNC ignored by it as well

    // The machine dies in the middle of the n-th write or flush from now: that one is torn, and so is each write in
    // flight with it; later ones do nothing and fail.
    void die_after(std::uint64_t changes) { changes_left_ = changes; }
    bool dead() const noexcept { return changes_left_ == 0; }
    std::uint64_t changes() const noexcept { return changes_; }  // writes and flushes so far

    // After the store is gone: what the disk holds when the power comes back, and the machine lives again.
    void cut(Loss loss);

    // Carries out some of them, at least one, and takes those out of the list. Returns them with their results.
    aio::Attempt* carry_out(std::vector<aio::Attempt*>& in_flight);

   private:
    struct Write {
        std::uint64_t offset_bytes = 0;
        std::vector<std::byte> bytes;
    };
    struct Image {
        std::string path;
        std::vector<std::byte> durable;
        std::vector<Write> unflushed;
    };

    Image& image_of(int fd);
    std::int32_t carry_out_one(aio::Attempt& attempt);
    std::int32_t write(aio::Attempt& attempt, Image& image);
    void tear(const aio::Attempt& attempt, Image& image);
    void lose(Image& image, Loss loss);

    std::mt19937_64 random_;
    InFlight order_;
    std::map<std::uint64_t, Image> images_;  // by inode
    std::optional<std::uint64_t> changes_left_;
    std::uint64_t changes_ = 0;
};

}  // namespace penstock::testing
