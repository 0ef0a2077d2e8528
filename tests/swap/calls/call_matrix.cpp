#include "tests/swap/calls/call_matrix.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/child.h"
#include "tests/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <regex>
#include <string_view>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

std::size_t open_descriptors() {
    const fs::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(fs::begin(all), fs::end(all)));
}

// Whoever reads it knows what to do.
bool names_a_remedy(const std::string& message) {
    static const std::regex remedy(
        "\\b(check|choose|raise|lower|free|make|put|wait|try|mount|create|move|give|open the store "
        "again|correct|"
        "use|name|watch|written again)\\b",
        std::regex::icase);
    return std::regex_search(message, remedy);
}

// Of a store, for an error that passes.
bool advises_removal(const std::string& message) {
    static const std::regex removal("remove (\\S+ and start|the directory|it\\b)", std::regex::icase);
    return std::regex_search(message, removal);
}

bool names_a_place(const std::string& message, const std::string& root) {
    const auto has = [&](std::string_view words) { return message.find(words) != std::string::npos; };
    const bool in_store = has(root) || has("tiles could not be");
    const bool in_process = has("bytes of host memory") || has("no I/O backend works here") || has("eventfd: ") ||
                            has("epoll_") || has("timerfd_") || has("I/O threads");
    return in_store || in_process;
}

// The same for every store and tile.
std::string without_places(std::string message, const std::string& root) {
    for (std::size_t at = 0; (at = message.find(root, at)) != std::string::npos;) message.replace(at, root.size(), "");
    message = std::regex_replace(message, std::regex("[0-9a-f]{8}-[0-9a-f-]{27}"), "UUID");
    return std::regex_replace(message, std::regex("[0-9][0-9.]*"), "N");
}

// One letter for what came of it, and words.
std::string act(const CallScene& scene, const std::string& root, const CallFault& fault) {
    const CallScope scope(fault);
    const std::size_t open_before = open_descriptors();
    std::string said;
    scope.begin();
    try {
        const std::string wrong = scene.act(root, scope);
        said = (wrong.empty() ? "D" : "S") + wrong;
    } catch (const Error& error) {
        said = std::string("R") + error.what();
    } catch (const std::exception& error) {
        said = std::string("V") + "no Error: " + error.what();
    }
    scope.end();
    if (watched().struck == 0) return "M";
    const bool stuck = said.find("has not come back") != std::string::npos;  // its files stay open for ever
    if (const std::size_t open_now = open_descriptors(); open_now != open_before && !stuck)
        return fmt::format("L{} descriptors more are open than before; {}", open_now - open_before, said);
    return said;
}

}  // namespace

const char* to_string(CallVerdict verdict) noexcept {
    constexpr std::array<const char*, verdict_count> words{"missed", "unaffected", "refused", "vague",  "silent",
                                                           "lost",   "leaking",    "hung",    "aborted"};
    return words[static_cast<std::size_t>(verdict)];
}

std::uint64_t CallTally::bad() const {
    std::uint64_t sum = 0;
    for (auto at = static_cast<std::size_t>(CallVerdict::vague); at < verdict_count; ++at) sum += by_verdict[at];
    return sum;
}

CallTally& CallTally::operator+=(const CallTally& other) {
    calls += other.calls;
    places += other.places;
    cases += other.cases;
    of_all += other.of_all;
    for (std::size_t i = 0; i < verdict_count; ++i) by_verdict[i] += other.by_verdict[i];
    return *this;
}

CallMatrix::CallMatrix(const CallScene& scene) : scene_(scene), scratch_(aio::quick_temporary_path()) {
    fs::create_directory(scratch_.file("image"));
    fs::create_directory(scratch_.file("work"));
    const std::string root = scratch_.file("work");
    ChildEnd made = in_child([&] {
        scene.prepare(root);
        return std::string("made");
    });
    PENSTOCK_CHECK(made.said == "made", "{} could not be prepared", scene.name());
    fs::copy(root, scratch_.file("image"), fs::copy_options::recursive);
    // What is counted comes back through a file: there is much of it.
    const ChildEnd counted = in_child([&] {
        const CallScope scope(std::nullopt);
        scope.begin();
        std::string wrong;
        try {
            wrong = scene.act(root, scope);
        } catch (const Error& error) {
            if (!scene.is_refused_anyhow()) throw;
        }
        scope.end();
        PENSTOCK_CHECK(wrong.empty(), "{} without a fault: {}", scene.name(), wrong);
        const WatchedCalls calls = watched();
        std::string told(reinterpret_cast<const char*>(calls.counts.data()), sizeof calls.counts);
        return told.append(reinterpret_cast<const char*>(&calls.places), sizeof calls.places);
    });
    PENSTOCK_CHECK(counted.said.size() == sizeof without_.counts + sizeof without_.places, "{} ends with {:#x}",
                   scene.name(), counted.status);
    std::copy_n(counted.said.data(), sizeof without_.counts, reinterpret_cast<char*>(without_.counts.data()));
    std::copy_n(counted.said.data() + sizeof without_.counts, sizeof without_.places,
                reinterpret_cast<char*>(&without_.places));
    const ChildEnd checked = in_child([&] {
        const std::string wrong = scene.check(root, !scene.is_refused_anyhow());
        return wrong.empty() ? "right" : wrong;
    });
    PENSTOCK_CHECK(checked.said == "right", "{} without a fault: {}", scene.name(), checked.said);
    for (const std::uint64_t count : without_.counts) tally_.calls += count;
    tally_.places = without_.places;
    tally_.of_all = faults(0).size();
}

std::vector<CallFault> CallMatrix::faults(std::uint64_t seed) const {
    std::vector<CallFault> all;
    for (std::size_t call = 0; call < call_count; ++call) {
        const WatchedCall& watched = watched_calls[call];
        for (std::uint64_t ordinal = 0; ordinal < without_.counts[call]; ++ordinal) {
            for (const int error : watched.errors) {
                if (error == 0) break;
                all.push_back({.call = call, .ordinal = ordinal, .error = error, .recurs = Recurs::once});
                if (watched.only_once || error == half_of_it) continue;
                all.push_back({.call = call, .ordinal = ordinal, .error = error, .recurs = Recurs::from_then_on});
                if (error == EINTR || error == EWOULDBLOCK) continue;  // these pass
                all.push_back({.call = call, .ordinal = ordinal, .error = error, .recurs = Recurs::everywhere});
            }
        }
    }
    std::shuffle(all.begin(), all.end(), std::mt19937_64(mix(seed)));
    return all;
}

std::string CallMatrix::run(const CallFault& fault) {
    const Ended ended = try_fault(fault);
    ++tally_.cases;
    ++tally_.by_verdict[static_cast<std::size_t>(ended.verdict)];
    if (ended.verdict == CallVerdict::refused || ended.verdict == CallVerdict::vague)
        ++refusals_[without_places(ended.words, scratch_.file("work"))];
    if (ended.verdict < CallVerdict::vague) return {};
    return fmt::format("{}, {}: {}: {}", scene_.name(), to_string(fault), to_string(ended.verdict), ended.words);
}

void CallMatrix::restore() const {
    const std::string root = scratch_.file("work");
    for (const auto& entry : fs::directory_iterator(root)) fs::remove_all(entry.path());
    fs::copy(scratch_.file("image"), root, fs::copy_options::recursive);
}

CallMatrix::Ended CallMatrix::try_fault(const CallFault& fault) {
    restore();
    const std::string root = scratch_.file("work");
    const ChildEnd acted = in_child([&] { return act(scene_, root, fault); });
    if (acted.hung) return {CallVerdict::hung, "it does not end"};
    if (acted.status != 0 || acted.said.empty())
        return {CallVerdict::aborted, fmt::format("it ends with status {:#x} {}", acted.status, acted.complaint)};
    const char letter = acted.said.front();
    const std::string words = acted.said.substr(1);
    if (letter == 'M') return {CallVerdict::missed, {}};
    if (letter == 'L') return {CallVerdict::leaking, words};
    if (letter == 'D' && scene_.is_refused_anyhow()) return {CallVerdict::silent, "it was done"};
    const ChildEnd checked = in_child([&] {
        try {
            const std::string wrong = scene_.check(root, letter == 'D');
            return wrong.empty() ? std::string("right") : wrong;
        } catch (const std::exception& error) {
            return std::string(error.what());
        }
    });
    if (checked.said != "right")
        return {CallVerdict::lost, fmt::format("afterwards: {}{}{}", checked.said.empty() ? "it aborts" : checked.said,
                                               words.empty() ? "" : "; it had said: ", words)};
    if (letter == 'S') return {CallVerdict::silent, words};
    if (letter == 'D') return {CallVerdict::unaffected, {}};
    const bool vague = letter == 'V' || !names_a_place(words, root) || !names_a_remedy(words) ||
                       (advises_removal(words) && !scene_.is_refused_anyhow());
    return {vague ? CallVerdict::vague : CallVerdict::refused, words};
}

}  // namespace penstock::testing
