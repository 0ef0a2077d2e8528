// A caller that changes its mind: promotes transfers while they run, from a seed.
#pragma once

#include "aio/io.h"
#include "aio/words/io_error.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace penstock::aio {

// Reads are never write_back, writes never prefetch.
Urgency draw_urgency(std::mt19937_64& random, IoKind direction);

class Meddler;

// Counts its ends, and lets the meddler change its mind at each.
struct Meddled : Transfer {
    int dones = 0;
    Meddler* meddler = nullptr;
    void done() noexcept override;
};

// For one run of an Io that outlives it.
class Meddler {
   public:
    Meddler(Io& io, std::uint64_t seed, int percent) : io_(io), random_(seed), percent_(percent) {}

    // After it was started; outlives this.
    void add(Meddled& transfer) {
        transfer.meddler = this;
        transfers_.push_back(&transfer);
    }
    // To be called before the first wait, and then whenever the caller has a say; mostly does nothing.
    void meddle() noexcept;
    void begins() noexcept { begun_ = true; }  // from now on transfers are issued

    std::uint64_t promotions() const noexcept { return promotions_; }  // that took effect
    const std::vector<std::string>& complaints() const noexcept { return complaints_; }

   private:
    void promote(Meddled& transfer);

    Io& io_;
    std::mt19937_64 random_;
    int percent_;
    bool begun_ = false;
    std::uint64_t promotions_ = 0;
    std::vector<Meddled*> transfers_;
    std::vector<std::string> complaints_;
};

}  // namespace penstock::aio
