#include "zero_infinity/capi/c_shelf.h"

#include "aio/words/error.h"
#include "swap/capi/c_error.h"

namespace penstock::zero {

using store::require;

Shelf& CShelf::own() {
    require(shelf_ != nullptr, "options.activation_budget_bytes is 0: there is no room to lay anything aside");
    if (taken_) shelf_->put_back(*taken_);
    taken_.reset();
    return *shelf_;
}

template <typename Call>
auto CShelf::performed(Call call) {
    try {
        return call();
    } catch (const Error& error) {
        failed_ = error.code() != ExitCode::does_not_fit || shelf_->failed();
        throw;
    }
}

void* CShelf::lay(std::uint64_t turn, std::uint64_t bytes) {
    Shelf& to = own();
    require(bytes > 0, "nothing of 0 bytes is laid aside");
    require(!to.has(turn), "two things are laid aside for turn {}", turn);
    return performed([&] { return to.lay({.turn = turn, .bytes = bytes}).data(); });
}

void* CShelf::take(std::uint64_t turn) {
    Shelf& from = own();
    require(from.has(turn), "nothing is laid aside for turn {}", turn);
    void* data = performed([&] { return from.take(turn).data(); });
    taken_ = turn;
    return data;
}

void CShelf::drop(std::uint64_t turn) {
    Shelf& from = own();
    require(from.has(turn), "nothing is laid aside for turn {}", turn);
    performed([&] { from.drop(turn); });
}

}  // namespace penstock::zero
