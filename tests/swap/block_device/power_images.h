// Real power cuts: what a drive may hold when the power fails is built from a log of the writes and flushes that
// reached it, for every flush and for any subset of the writes after it; the kernel mounts it and the store is
// recovered from it. A library without GoogleTest, because the negative control runs it on a store without its flush.
#pragma once

#include "tests/swap/block_device/fuse_disk.h"
#include "tests/swap/block_device/loop_device.h"
#include "tests/swap/store/exercise.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace penstock::testing {

// How small the pieces are in which a drive loses what it had not flushed.
enum class Tear : std::uint8_t { whole_writes, blocks_of_4096, sectors_of_512 };

struct PowerTally {
    std::uint64_t images = 0;
    std::uint64_t at_flushes = 0;       // images that hold all before a flush and nothing after it
    std::uint64_t in_between = 0;       // with a subset of the writes after it
    std::uint64_t torn = 0;             // of these, torn within a write
    std::uint64_t without_store = 0;    // from before the first generation
    std::uint64_t newer_than_told = 0;  // a generation was recovered whose commit had not been reported yet
    std::uint64_t went_on = 0;          // images on which the store committed further
    std::uint64_t flushes = 0;          // in all recordings
};

// Records lives of a store on a file system on a FuseDisk and cuts their power. One process, one thread.
class PowerImages {
   public:
    // Works in `directory`, which must be empty. A wrong image is kept as a file in `keep_directory`, which outlives
    // the test (empty: it is not kept). Throws std::runtime_error where this machine does not allow it.
    PowerImages(const std::string& directory, FileSystem kind, std::string keep_directory);

    // One recorded life of a store and about `images` cuts of it. What is wrong; stops at the first. Which bytes are
    // written follows from the seed; when the file system writes what depends on the kernel too, so the same seed gives
    // similar images, not the same.
    std::vector<std::string> run(std::uint64_t seed, std::uint64_t images);

    const PowerTally& tally() const { return tally_; }

   private:
    struct Event {
        std::uint64_t offset_bytes = 0;
        std::vector<std::byte> before;
        std::vector<std::byte> after;  // empty: a flush
    };
    struct Recording {
        std::vector<Event> events;
        std::vector<std::size_t> begun;     // by generation: events before its first write
        std::vector<std::size_t> reported;  // and when its commit was reported
    };
    // The generations that may be found when the power fails after so many events.
    struct Expected {
        std::optional<std::uint64_t> least;
        std::optional<std::uint64_t> most;
    };
    // From one flush to the next: what a power cut may lose together. Events [begin, end); the flush is not one of
    // them.
    struct Epoch {
        std::size_t begin = 0;
        std::size_t end = 0;
    };
    using Undo = std::vector<Event>;

    Recording record(std::uint64_t seed);
    static std::vector<Epoch> epochs_of(const Recording& recording);
    static Expected expected(const Recording& recording, std::size_t events);
    std::string cut(const Recording& recording, Epoch epoch, std::optional<Tear> tear);
    std::string examine(const Expected& expected);
    std::string examine_store(store::StoreDirectory& directory, const Expected& expected);
    std::string go_on(store::StoreDirectory& directory, std::uint64_t generation);
    Undo lose_some(const Recording& recording, const Epoch& epoch, Tear tear);
    void put(std::uint64_t offset_bytes, std::span<const std::byte> bytes);
    void take_back(const std::vector<Event>& events);
    void take_back_log();
    std::string keep_image() const;
    std::unique_ptr<aio::Io> make_io();

    std::string mount_point_;
    FileSystem kind_;
    std::string keep_directory_;
    FuseDisk disk_;  // before the backend: its server is forked from one thread
    std::unique_ptr<aio::Backend> backend_;
    std::mt19937_64 random_;
    std::uint64_t seed_ = 0;
    PowerTally tally_;
};

// The line for reports.
std::string to_string(const PowerTally& tally);

}  // namespace penstock::testing
