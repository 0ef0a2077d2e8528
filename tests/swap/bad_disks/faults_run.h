// One run of the matrix of bad disks (faults_matrix.h): a store, what is done to it, and the model it is held to.
#pragma once

#include "aio/io.h"
#include "swap/store/tensor_store.h"
#include "tests/aio/fakes/faulty_backend.h"
#include "tests/swap/bad_disks/faults_matrix.h"
#include "tests/swap/bad_disks/striker.h"
#include "tests/swap/hashing/hashers_at_once.h"
#include "tests/swap/store/exercise.h"

#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {

class FaultsRun {
   public:
    FaultsRun(const BadDisk& disk, aio::Backend& backend, std::uint64_t seed, FaultTally& tally);
    ~FaultsRun();

    std::vector<std::string> operator()();

   private:
    using Versions = std::vector<std::uint64_t>;  // by tile; the bytes follow from seed, tile and version
    struct Moved {
        Moved(store::TileId id, std::uint64_t bytes) : tile(id), memory(bytes) {}
        store::TileId tile;
        aio::ScratchMemory memory;
        TestTile operation;
    };
    enum class Tiles : std::uint8_t { some, all, failed };

    template <typename... Values>
    void complain(fmt::format_string<Values...> format, Values&&... values) {
        complaints_.push_back(fmt::format(format, std::forward<Values>(values)...));
    }

    // faults_run.cpp: what is done.
    void run_attempts();
    void run_creation();
    void run_files();
    void run_removal();
    void open_after_failure();
    void interrupt_a_commit();
    void live_through_harm(const StoreImage& now, Scene& scene);
    StoreImage other_store();

    // faults_steps.cpp: the steps, and what each is held to.
    std::vector<std::string> paths() const;
    void arm();
    void disarm();
    bool create();
    bool open(std::uint64_t least, std::uint64_t most, GoingBack going_back = GoingBack::never);
    void close();
    void reopen();
    bool write(Tiles tiles);  // whether all of it was written
    bool commit();
    void check_tiles();
    void examine(const Moved& moved);
    void drain();
    bool holds(store::TileId tile, std::span<const std::byte> found) const;
    bool sound_on_disk(store::TileId tile) const;
    bool names_a_file(const std::string& message) const;
    bool must_not_refuse(const std::string& message) const;
    std::uint64_t generation() const { return history_.size() - 1; }

    const BadDisk& disk_;
    FaultTally& tally_;
    std::uint64_t seed_;
    std::mt19937_64 random_;
    Exercise exercise_;
    TemporaryDirectory scratch_;
    std::vector<std::unique_ptr<store::StoreDirectory>> owned_;
    std::vector<store::StoreDirectory*> directories_;
    Striker striker_;
    aio::FaultyBackend& faulty_;  // within the next
    StruckBackend& device_;       // the Io's
    aio::Io io_;
    HashersAtOnce hashers_{io_};
    store::TileHashers* const used_ = random_() % 2 == 0 ? &hashers_ : nullptr;
    std::unique_ptr<store::TensorStore> store_;

    std::vector<Versions> history_;  // by generation: what was committed
    Versions pending_;
    std::vector<bool> failed_;  // tiles whose last write was refused
    std::uint64_t last_version_ = 0;
    std::vector<std::string> complaints_;
};

}  // namespace penstock::testing
