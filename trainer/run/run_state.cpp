#include "trainer/run/run_state.h"

#include "aio/words/error.h"

#include <fmt/format.h>

#include <charconv>

namespace penstock::trainer {
namespace {

constexpr auto format_key = "trainer.format";
constexpr auto state_format = "1";
constexpr std::int64_t most = 1'000'000'000'000'000;  // of steps and rows; beyond it sums would overflow

template <typename Number>
std::optional<Number> number(const store::ClientState& client, const std::string& key) {
    const auto found = client.find(key);
    if (found == client.end()) return std::nullopt;
    Number value{};
    const char* end = found->second.data() + found->second.size();
    const auto result = std::from_chars(found->second.data(), end, value);
    if (result.ec != std::errc{} || result.ptr != end) return std::nullopt;
    return value;
}

// Shortest text that reads back to the same double.
void put(store::ClientState& client, const char* key, const std::optional<double>& value) {
    if (value) client[key] = fmt::format("{}", *value);
}

}  // namespace

std::string with_what_is_safe(const std::string& problem, const RunProgress& progress, const std::string& store) {
    return fmt::format("{}; {}", problem,
                       progress.committed ? fmt::format("step {} is committed in {}", *progress.committed, store)
                                          : "nothing of a scratch run is kept");
}

void write_state(const RunState& state, store::ClientState& client) {
    client[format_key] = state_format;
    client["step"] = std::to_string(state.step);
    client["data.rows"] = std::to_string(state.rows);
    client["data.hash"] = state.data_hash;
    put(client, "first_loss", state.first_loss);
    put(client, "last_loss", state.last_loss);
    put(client, "last_norm", state.last_norm);
}

RunState read_state(const store::ClientState& client) {
    const auto format = client.find(format_key);
    const auto step = number<std::int64_t>(client, "step");
    const auto hash = client.find("data.hash");
    const auto rows = number<std::int64_t>(client, "data.rows");
    const bool sound = step && *step >= 0 && *step <= most && rows && *rows >= 0 && *rows <= most;
    if (format == client.end() || format->second != state_format || !sound || hash == client.end()) {
        throw Error(ExitCode::storage,
                    "the store was not written by this version of `penstock train`: name another store directory");
    }
    return {.step = *step,
            .rows = *rows,
            .data_hash = hash->second,
            .first_loss = number<double>(client, "first_loss"),
            .last_loss = number<double>(client, "last_loss"),
            .last_norm = number<double>(client, "last_norm")};
}

}  // namespace penstock::trainer
