// A transport over messages of MPI. Internal to the ranks over MPI.
#pragma once

#include "zero_infinity/ranks/mpi/last_words_mpi.h"
#include "zero_infinity/ranks/transport.h"

#include <mpi.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace penstock::zero {

// A call goes in chunks, each a message to and from every other rank, two chunks on their way at once. Messages and not
// MPI's own collectives: those cannot say which rank they wait for, and their steps need MPI's attention as long as the
// whole call takes, while a thread that sleeps gives it now and then. A message of a bounded chunk needs it seldom.
//
// MPI cannot take back what was begun. So chunks pass through an area that is this transport's; where a call throws,
// the area is left to MPI for good. The copies cost little while a chunk lies in the cache.
class TransportMpi final : public Transport {
   public:
    struct Options {
        std::string name;
        std::size_t chunk_bytes = 0;  // the area has 4 of each rank
        std::chrono::milliseconds deadline{0};
    };
    // `ranks` is nobody else's; the words outlive it.
    TransportMpi(MPI_Comm ranks, Options options, LastWords& words);
    ~TransportMpi() override;

    std::uint32_t rank() const noexcept override { return rank_; }
    std::uint32_t ranks() const noexcept override { return ranks_; }
    std::string name() const override { return options_.name; }
    void all_gather(std::span<const std::byte> mine, const RankBlocks& all) override;
    void exchange(const ConstRankBlocks& to, const RankBlocks& from) override;
    void abort(std::string_view cause) noexcept override { words_->say(cause); }

   private:
    struct Call;
    struct Slot {
        std::vector<std::byte> sent, come;  // a chunk of each rank
        std::vector<MPI_Request> requests;  // of what comes from each rank, then of what goes to each
        std::vector<int> done;              // of requests: their places
        std::vector<MPI_Status> ends;       // of those
    };
    using Area = std::array<Slot, 2>;

    void make(const Call& call);
    void begin_chunk(const Call& call, std::size_t chunk);
    void end_chunk(const Call& call, std::size_t chunk);
    void wait_for(const Call& call, Slot& slot, std::size_t bytes);
    bool all_done(Slot& slot, std::size_t bytes, bool& some);
    Error lost(const Call& call, const Slot& slot) const;
    Slot& slot_of(std::size_t chunk) { return (*area_)[chunk % area_->size()]; }

    const MPI_Comm comm_;
    const Options options_;
    LastWords* words_;
    std::uint32_t rank_ = 0, ranks_ = 1;
    std::unique_ptr<Area> area_;
};

}  // namespace penstock::zero
