// parse_pool_trace(): refuses with Error (usage) or takes a trace that contradicts itself nowhere and is written and
// read back the same.
#include "aio/check.h"
#include "aio/error.h"
#include "pinned_pool/pool_trace.h"
#include "tests/fuzz/fuzz_target.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <unordered_map>

namespace penstock::fuzz {
namespace {

std::optional<PoolTrace> parse(const std::string& text) {
    std::istringstream in(text);
    try {
        return parse_pool_trace(in, "input");
    } catch (const Error& error) {
        PENSTOCK_CHECK(error.code() == ExitCode::usage, "exit code {}", static_cast<int>(error.code()));
        PENSTOCK_CHECK(std::string_view(error.what()).starts_with("input:"), "no place in: {}", error.what());
        return std::nullopt;
    }
}

// By the words of pool_trace.h.
void check_events(const PoolTrace& trace) {
    std::unordered_map<std::uint64_t, bool> out;  // id -> dropped
    for (const PoolEvent& event : trace.events) {
        const bool request = event.kind == PoolEvent::Kind::granted || event.kind == PoolEvent::Kind::refused;
        PENSTOCK_CHECK(!request || (event.use < trace.uses.size() && event.bytes > 0), "{} bytes of use {}",
                       event.bytes, event.use);
        if (event.kind == PoolEvent::Kind::granted) {
            PENSTOCK_CHECK(event.bytes <= trace.uses[event.use].bytes, "{} bytes", event.bytes);
            PENSTOCK_CHECK(out.emplace(event.id, false).second, "lease {} twice", event.id);
        } else if (event.kind == PoolEvent::Kind::dropped) {
            PENSTOCK_CHECK(out.contains(event.id) && !out.at(event.id), "lease {} dropped", event.id);
            out.at(event.id) = true;
        } else if (event.kind == PoolEvent::Kind::returned) {
            PENSTOCK_CHECK(out.erase(event.id) == 1, "lease {} returned", event.id);
        }
    }
}

bool same_uses(const std::vector<Use>& a, const std::vector<Use>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Use& x, const Use& y) { return x.name == y.name && x.bytes == y.bytes; });
}

void run(std::span<const std::byte> input) {
    const std::optional<PoolTrace> trace = parse(text_of(input));
    if (!trace) return;
    check_events(*trace);
    std::ostringstream written;
    write_pool_trace(written, *trace);
    const std::optional<PoolTrace> again = parse(written.str());
    PENSTOCK_CHECK(again && again->budget_bytes == trace->budget_bytes && again->events == trace->events &&
                       again->lost_events == trace->lost_events && same_uses(again->uses, trace->uses),
                   "it was read back as another: {}", written.str());
}

std::vector<Bytes> seeds() {
    return {bytes_of("penstock pool trace 1\nbudget 0\n"),
            bytes_of("penstock pool trace 1\n# comment\n\nbudget 100663296\r\nuse 25165824 staging\nuse 4096 a b\n"
                     "g 0 3000000 17\nx 0 90000000\nd 17\nr 17\ng 1 1 17\nr 17\nlost 3\n"),
            bytes_of("penstock pool trace 1\nbudget 18446744073709551615\nuse 281474976710656 most\n"
                     "g 0 281474976710656 18446744073709551615\n"),
            bytes_of("penstock pool trace 2\n"),
            // Names with a carriage return at the end, and each contradiction.
            bytes_of("penstock pool trace 1\nbudget 1\nuse 1 a\r\r\n"),
            bytes_of("penstock pool trace 1\nbudget 1\nuse 1 a\ng 1 1 5\n"),
            bytes_of("penstock pool trace 1\nbudget 1\nuse 1 a\ng 0 2 5\n"),
            bytes_of("penstock pool trace 1\nbudget 1\nuse 1 a\ng 0 1 5\ng 0 1 5\n"),
            bytes_of("penstock pool trace 1\nbudget 1\nuse 1 a\ng 0 1 5\nd 5\nd 5\n"),
            bytes_of("penstock pool trace 1\nbudget 1\nuse 1 a\nr 5\n")};
}

}  // namespace

const FuzzTarget pool_trace_target = {.name = "pool_trace", .run = run, .mutate = nullptr, .seeds = seeds};

}  // namespace penstock::fuzz
