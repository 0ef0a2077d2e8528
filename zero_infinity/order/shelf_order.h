// Which of the things that are laid aside lies in memory when: decided without I/O or clock, for a Shelf as for its
// forecast. What finds no room goes to NVMe, what is taken last first, and comes back before it is taken. For an
// order that is known this is the least that can be moved (L. A. Belady, A study of replacement algorithms for a
// virtual-storage computer, IBM Systems Journal 5(2), 1966), but for room for two of the longest, which is made
// beforehand, so that nobody waits for it.
#pragma once

#include "zero_infinity/order/spare_nodes.h"

#include <cstdint>
#include <map>
#include <optional>

namespace penstock::zero {

// Carries it out. A thing is called by the turn in which it is taken.
class ShelfHands {
   public:
    virtual bool find_room(std::uint64_t turn, std::uint64_t bytes) = 0;  // memory for it; false: there is none
    virtual void give_room(std::uint64_t turn) = 0;                       // its memory is free again
    // Return at once; bytes move between its memory and NVMe.
    virtual void send(std::uint64_t turn) = 0;  // may throw, and nothing has changed
    virtual void fetch(std::uint64_t turn) = 0;
    virtual void wait(std::uint64_t turn) = 0;  // until what was begun for it last has ended

   protected:
    ~ShelfHands() = default;
};

// One thread. Allocates where more is laid aside at once than ever before.
class ShelfOrder {
   public:
    // Of so many bytes of memory. The hands outlive it.
    ShelfOrder(std::uint64_t most_bytes, ShelfHands& hands) : most_(most_bytes), hands_(hands) {}

    // False: there is no room beside what is in use. Then nothing is laid or taken, but others may have gone to NVMe.
    [[nodiscard]] bool lay(std::uint64_t turn, std::uint64_t bytes);  // its memory is to be filled before the next call
    [[nodiscard]] bool take(std::uint64_t turn);  // waits until its memory has it; what is taken next comes meanwhile
    void put_back(std::uint64_t turn);            // which was taken: it is laid aside as before
    void drop(std::uint64_t turn);
    bool has(std::uint64_t turn) const;  // something is laid aside for it
    void clear();                        // drops all

   private:
    struct Item {
        enum class Stay : std::uint8_t { there, leaving, coming } stay = Stay::there;  // while it has memory
        std::uint64_t bytes = 0;
        bool stored = false;  // NVMe has it, too
        bool taken = false;   // its memory is in use
    };
    using Items = std::map<std::uint64_t, Item>;  // by turn
    using Entry = Items::value_type;

    bool find_room(std::uint64_t turn, std::uint64_t bytes, std::optional<std::uint64_t> after);
    bool make_room(std::optional<std::uint64_t> after);
    void send_out(Entry& entry);
    void end_leaving(Entry& entry);
    void free_memory(Entry& entry);
    void arrive(Entry& entry);
    void keep_room(std::uint64_t bytes);
    void fetch(Items::iterator away);
    void fetch_ahead(std::uint64_t turn);

    std::uint64_t most_;
    ShelfHands& hands_;
    // A thing is in one of the two, so that a decision looks only at those that it is about.
    Items inside_;             // with memory
    Items away_;               // on NVMe alone
    SpareNodes<Items> spare_;  // of what was dropped
    std::uint64_t longest_ = 0;
    std::uint64_t staying_ = 0;  // bytes in memory that are not on their way out
};

}  // namespace penstock::zero
