// What a C caller lays aside and takes again (penstock_session_lay): the session's shelf, and what may be asked of it.
#pragma once

#include "zero_infinity/session/shelf.h"

#include <cstdint>
#include <optional>

namespace penstock::zero {

// Of one session, which outlives its use. Throws Refusal (usage), and what Shelf does.
class CShelf {
   public:
    CShelf() = default;
    explicit CShelf(Shelf* shelf) : shelf_(shelf) {}  // null: there is none

    void* lay(std::uint64_t turn, std::uint64_t bytes);
    void* take(std::uint64_t turn);  // until the next of these calls
    void drop(std::uint64_t turn);
    ShelfFigures figures() const { return shelf_ != nullptr ? shelf_->figures() : ShelfFigures(); }
    bool failed() const noexcept { return failed_; }  // halfway: the session is of no use any more

   private:
    Shelf& own();
    template <typename Call>
    auto performed(Call call);

    Shelf* shelf_ = nullptr;
    std::optional<std::uint64_t> taken_;
    bool failed_ = false;
};

}  // namespace penstock::zero
