#include "pinned_pool/pool_trace.h"

#include "aio/check.h"
#include "aio/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <istream>
#include <ostream>
#include <unordered_map>
#include <utility>

namespace penstock {

namespace {

constexpr std::string_view first_words = "penstock pool trace ";
constexpr std::string_view version = "1";
constexpr std::uint64_t max_use_bytes = 1ULL << 48;  // sums over all events stay within 64 bits

// Line by line; each complaint names the place.
class Parser {
   public:
    Parser(std::istream& in, const std::string& path) : in_(in), path_(path) {}

    PoolTrace parse();

   private:
    [[noreturn]] void complain(const std::string& what) const {
        throw Error(ExitCode::usage, fmt::format("{}:{}: {}", path_, line_, what));
    }
    bool next_line();
    std::string_view word();
    std::uint64_t number(const char* what);
    void end_of_line();

    void header();
    void statement(std::string_view keyword);
    void use();
    void event(std::string_view keyword);
    void request(PoolEvent& event);
    void claim(PoolEvent& event);

    std::istream& in_;
    const std::string& path_;
    std::size_t line_ = 0;
    std::string text_;
    std::string_view rest_;  // of the line
    PoolTrace trace_;
    bool budget_known_ = false;
    std::unordered_map<std::uint64_t, bool> out_;  // ids that are out -> dropped
};

PoolTrace Parser::parse() {
    header();
    while (next_line()) statement(word());
    if (!budget_known_) complain("the trace has no line 'budget BYTES'");
    return std::move(trace_);
}

void Parser::header() {
    if (!next_line() || !rest_.starts_with(first_words)) {
        complain(fmt::format("not a trace of a pool: the first line must be '{}{}'", first_words, version));
    }
    rest_.remove_prefix(first_words.size());
    if (rest_ != version) complain(fmt::format("version '{}' of the format; this program reads {}", rest_, version));
}

// To the next line that says something.
bool Parser::next_line() {
    while (std::getline(in_, text_)) {
        ++line_;
        if (!text_.empty() && text_.back() == '\r') text_.pop_back();
        rest_ = text_;
        if (!rest_.empty() && rest_.front() != '#') return true;
    }
    return false;
}

std::string_view Parser::word() {
    const std::size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view found = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return found;
}

std::uint64_t Parser::number(const char* what) {
    const std::string_view text = word();
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
        complain(fmt::format("'{}' where {} must stand", text, what));
    }
    return value;
}

void Parser::end_of_line() {
    if (!rest_.empty()) complain(fmt::format("'{}' is too much on this line", rest_));
}

void Parser::statement(std::string_view keyword) {
    if (keyword == "budget") {
        if (std::exchange(budget_known_, true)) complain("a second budget");
        trace_.budget_bytes = number("the budget in bytes");
        end_of_line();
    } else if (keyword == "use") {
        use();
    } else if (keyword == "lost") {
        trace_.lost_events = number("the number of lost events");
        end_of_line();
    } else {
        event(keyword);
    }
}

void Parser::use() {
    if (!trace_.events.empty()) complain("a use after the first event");
    const std::uint64_t bytes = number("the use's bytes");
    if (bytes > max_use_bytes) complain(fmt::format("a use of more than {} bytes", max_use_bytes));
    const std::string name(rest_);
    if (name.empty()) complain("a use without a name");
    // Of a name that ends with one, the line's end would be a part when it is written and read again.
    if (std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }))
        complain("a use's name with control characters in it");
    const bool known =
        std::any_of(trace_.uses.begin(), trace_.uses.end(), [&](const Use& u) { return u.name == name; });
    if (known) complain(fmt::format("a second use '{}'", name));
    trace_.uses.push_back({.name = name, .bytes = bytes, .setting = {}});
}

void Parser::event(std::string_view keyword) {
    if (trace_.events.size() == max_trace_events) complain(fmt::format("more than {} events", max_trace_events));
    PoolEvent event;
    if (keyword == "g") {
        event.kind = PoolEvent::Kind::granted;
        request(event);
        const std::uint64_t use_bytes = trace_.uses[event.use].bytes;
        if (event.bytes > use_bytes) complain(fmt::format("{} bytes from a use of {}", event.bytes, use_bytes));
        event.id = number("the lease's id");
        if (!out_.emplace(event.id, false).second) complain(fmt::format("lease {} is out already", event.id));
    } else if (keyword == "x") {
        event.kind = PoolEvent::Kind::refused;
        request(event);
    } else if (keyword == "d" || keyword == "r") {
        event.kind = keyword == "d" ? PoolEvent::Kind::dropped : PoolEvent::Kind::returned;
        claim(event);
    } else {
        complain(fmt::format("'{}' is none of budget, use, g, x, d, r, lost", keyword));
    }
    end_of_line();
    trace_.events.push_back(event);
}

void Parser::request(PoolEvent& event) {
    const std::uint64_t use = number("the use's number");
    if (use >= trace_.uses.size()) complain(fmt::format("use {} of {}", use, trace_.uses.size()));
    event.use = static_cast<std::uint32_t>(use);
    event.bytes = number("the requested bytes");
    if (event.bytes == 0) complain("a request for 0 bytes");
}

void Parser::claim(PoolEvent& event) {
    event.id = number("the lease's id");
    const auto found = out_.find(event.id);
    if (found == out_.end()) complain(fmt::format("lease {} is not out", event.id));
    if (event.kind == PoolEvent::Kind::returned) {
        out_.erase(found);
    } else if (std::exchange(found->second, true)) {
        complain(fmt::format("lease {} is dropped a second time", event.id));
    }
}

char letter_of(PoolEvent::Kind kind) {
    switch (kind) {
        case PoolEvent::Kind::granted:
            return 'g';
        case PoolEvent::Kind::refused:
            return 'x';
        case PoolEvent::Kind::dropped:
            return 'd';
        case PoolEvent::Kind::returned:
            return 'r';
    }
    PENSTOCK_CHECK(false, "event of kind {}", static_cast<int>(kind));
}

}  // namespace

void write_pool_trace(std::ostream& out, const PoolTrace& trace) {
    out << first_words << version << "\nbudget " << trace.budget_bytes << '\n';
    for (const Use& use : trace.uses) out << "use " << use.bytes << ' ' << use.name << '\n';
    for (const PoolEvent& event : trace.events) {
        out << letter_of(event.kind);
        const bool request = event.kind == PoolEvent::Kind::granted || event.kind == PoolEvent::Kind::refused;
        if (request) out << ' ' << event.use << ' ' << event.bytes;
        if (event.kind != PoolEvent::Kind::refused) out << ' ' << event.id;
        out << '\n';
    }
    if (trace.lost_events > 0) out << "lost " << trace.lost_events << '\n';
}

PoolTrace parse_pool_trace(std::istream& in, const std::string& path) {
    return Parser(in, path).parse();
}

PoolTrace load_pool_trace(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw Error(ExitCode::usage, fmt::format("cannot read the trace {}: {}", path, errno_text(errno)));
    return parse_pool_trace(file, path);
}

void save_pool_trace(const std::string& path, const PoolTrace& trace) {
    std::ofstream file(path, std::ios::trunc);
    if (file) write_pool_trace(file, trace);
    file.close();
    if (!file) throw Error(ExitCode::storage, fmt::format("cannot write the trace {}: {}", path, errno_text(errno)));
}

void PoolRecorder::record(PoolEvent::Kind kind, std::string_view use, std::uint64_t bytes,
                          const std::byte* data) noexcept {
    const std::uint64_t place = next_.fetch_add(1, std::memory_order_relaxed);
    if (place >= slots_.size()) return;
    Slot& slot = slots_[place];
    slot.kind = kind;
    slot.use = use;
    slot.bytes = bytes;
    slot.data = data;
    slot.complete.store(true, std::memory_order_release);
}

void PoolRecorder::granted(std::string_view use, std::size_t requested_bytes, const std::byte* data) noexcept {
    record(PoolEvent::Kind::granted, use, requested_bytes, data);
}

void PoolRecorder::refused(std::string_view use, std::size_t requested_bytes) noexcept {
    record(PoolEvent::Kind::refused, use, requested_bytes, nullptr);
}

void PoolRecorder::returned(std::string_view use, const std::byte* data) noexcept {
    record(PoolEvent::Kind::returned, use, 0, data);
}

// Within a use the places are in the order of the events, since the pool calls under the use's lock: an address that
// comes back belongs to its latest grant.
PoolTrace PoolRecorder::trace(const Budget& budget) const {
    PoolTrace result{.budget_bytes = budget.limit_bytes(), .uses = budget.uses(), .events = {}, .lost_events = 0};
    const std::uint64_t seen = next_.load(std::memory_order_relaxed);
    const std::uint64_t kept = std::min<std::uint64_t>(seen, slots_.size());
    std::unordered_map<const std::byte*, std::uint64_t> id_at;
    std::uint64_t next_id = 0;
    for (std::uint64_t place = 0; place < kept && slots_[place].complete.load(std::memory_order_acquire); ++place) {
        const Slot& slot = slots_[place];
        const auto use = std::find_if(result.uses.begin(), result.uses.end(),
                                      [&](const Use& candidate) { return candidate.name == slot.use; });
        PENSTOCK_CHECK(use != result.uses.end(), "the budget has no use {}", slot.use);
        PoolEvent event{.kind = slot.kind,
                        .use = static_cast<std::uint32_t>(use - result.uses.begin()),
                        .bytes = slot.bytes,
                        .id = 0};
        if (slot.kind == PoolEvent::Kind::granted) {
            event.id = id_at[slot.data] = next_id++;
        } else if (slot.kind == PoolEvent::Kind::returned) {
            event.id = id_at.at(slot.data);
            event.use = 0;
        }
        result.events.push_back(event);
    }
    result.lost_events = seen - result.events.size();  // also what stands behind an event that is being recorded now
    return result;
}

}  // namespace penstock
