#include "zero_infinity/ranks/capi/board_calls.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "swap/capi/c_error.h"

#include <array>
#include <cstring>

namespace penstock::zero {
namespace {

using Text = std::array<char, Board::most_value_bytes + 1>;

std::string string_of(const char* text, std::size_t most_bytes) {
    return {text, strnlen(text, most_bytes)};
}

}  // namespace

CalledBoard::CalledBoard(const RankCalls& calls) : calls_(&calls) {
    PENSTOCK_CHECK(calls.has_board(), "{} has no board", calls.name());
}

void CalledBoard::put(const std::string& key, const std::string& value) {
    penstock_error error{};
    calls_->check(calls_->calls().put(key.c_str(), value.c_str(), calls_->calls().user, &error), error);
}

std::string CalledBoard::put_first(const std::string& key, const std::string& value) {
    penstock_error error{};
    Text stands{};
    const penstock_ranks& calls = calls_->calls();
    calls_->check(calls.put_first(key.c_str(), value.c_str(), stands.data(), stands.size(), calls.user, &error), error);
    return string_of(stands.data(), stands.size());
}

std::optional<std::string> CalledBoard::get(const std::string& key) {
    penstock_error error{};
    Text value{};
    const penstock_ranks& calls = calls_->calls();
    const penstock_status status = calls.get(key.c_str(), value.data(), value.size(), calls.user, &error);
    if (store::number_of(status) == PENSTOCK_NOT_FOUND) return {};
    calls_->check(status, error);
    return string_of(value.data(), value.size());
}

}  // namespace penstock::zero
