// The shelf of a forecast: what is laid aside in a pass, and moves, in virtual time.
#pragma once

#include "zero_infinity/forecast/step_forecast.h"
#include "zero_infinity/forecast/virtual_device.h"
#include "zero_infinity/order/shelf_order.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace penstock::zero {

struct ShelfBytes {
    std::uint64_t out = 0, in = 0;  // that go to NVMe in a pass, and come back
};

// Does not depend on how long anything takes. Exact where all are of one size: others leave holes in the shelf's
// memory, which are not foreseen. Throws as ShelfReplay.
ShelfBytes shelf_bytes(const LaidAside& laid, std::size_t visits);

// A visit is made in pieces, each of which may take a thing before it and lay one aside after it: a unit's
// micro-batches, or the several tensors of one. Throws Error (does_not_fit): a thing finds no room beside those that
// are in use.
class ShelfReplay final : private ShelfHands {
   public:
    using Reached = std::function<bool()>;
    using Wait = std::function<void(const Reached&)>;  // passes time until it is

    // The device outlives it; its transfers have the numbers from `first_number` on.
    ShelfReplay(const LaidAside& laid, std::size_t visits, VirtualDevice& device, std::uint64_t first_number,
                Wait wait);
    ShelfReplay(const ShelfReplay&) = delete;
    ShelfReplay& operator=(const ShelfReplay&) = delete;

    void begin_pass() { order_.clear(); }
    std::size_t pieces(std::size_t visit) const;  // 1 at least
    void begin_piece(std::size_t visit, std::size_t piece);
    void end_piece(std::size_t visit, std::size_t piece);

    const ShelfBytes& begun() const noexcept { return begun_; }  // since construction

    bool has(std::uint64_t number) const noexcept { return number >= first_number_; }
    void ended(std::uint64_t number) { under_way_[number - first_number_] = false; }  // of a transfer

   private:
    struct Take {
        std::uint64_t turn = 0;
        bool last = false;
    };
    struct OfVisit {
        std::vector<Take> taken;
        std::vector<std::uint64_t> laid;  // by turn
    };

    bool find_room(std::uint64_t turn, std::uint64_t bytes) override;
    void give_room(std::uint64_t turn) override { free_bytes_ += bytes_[turn]; }
    void send(std::uint64_t turn) override { begin(Direction::write, turn); }
    void fetch(std::uint64_t turn) override { begin(Direction::read, turn); }
    void wait(std::uint64_t turn) override;
    void begin(Direction direction, std::uint64_t turn);
    void add(const LaidItem& item, std::uint64_t turn);
    [[noreturn]] void refuse(std::uint64_t bytes) const;

    // Constant after construction. Turns are counted from 0 here.
    VirtualDevice& device_;
    std::uint64_t first_number_;
    Wait wait_;
    std::uint64_t all_bytes_;
    std::vector<std::uint64_t> bytes_;  // by turn
    std::vector<OfVisit> visits_;

    // What is laid aside now, and moves.
    std::uint64_t free_bytes_;
    std::vector<bool> under_way_;  // by turn
    ShelfBytes begun_;
    ShelfOrder order_;
};

}  // namespace penstock::zero
