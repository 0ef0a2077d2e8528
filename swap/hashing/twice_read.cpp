#include "swap/hashing/twice_read.h"

#include <fmt/format.h>

#include <utility>

namespace penstock::store {

TwiceRead::Verdict TwiceRead::judge(bool right) noexcept {
    const bool second = std::exchange(again_, !right);
    if (right) return second ? Verdict::right_again : Verdict::right;
    return second ? Verdict::damaged : Verdict::again;
}

std::string TwiceRead::note(const std::string& place) {
    return place + " was read wrong once and right when it was read again: watch the drive.";
}

std::string TwiceRead::damage(const std::string& place, const std::string& remedy) {
    return fmt::format("{}: the bytes there are not the ones that were written, also when read again. {}.", place,
                       remedy);
}

}  // namespace penstock::store
