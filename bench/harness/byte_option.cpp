#include "bench/harness/byte_option.h"

#include "aio/words/byte_count.h"
#include "aio/words/error.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace penstock::bench {
namespace {

constexpr const char* expected = "expected a number of bytes such as 2GiB (KiB, MiB, GiB, TiB)";

}  // namespace

std::uint64_t byte_option(const std::string& text, const std::string& option) {
    const auto bytes = parse_bytes(text);
    if (bytes.value_or(0) > 0) return *bytes;
    throw Error(ExitCode::usage, fmt::format("{} {}: {}", option, text, expected));
}

std::string bytes_of_text(const std::string& text) {
    if (const auto bytes = parse_bytes(text)) return std::to_string(*bytes);
    throw CLI::ValidationError(fmt::format("{}, not '{}'", expected, text));
}

}  // namespace penstock::bench
