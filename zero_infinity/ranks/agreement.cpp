#include "zero_infinity/ranks/agreement.h"

#include "aio/words/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>

namespace penstock::zero {
namespace {

using Ranks = std::vector<std::uint32_t>;
constexpr std::string_view absent = "nothing";  // as the value of a name that a rank does not have

std::map<std::string, std::string> by_name(const AgreedValues& of) {
    std::map<std::string, std::string> found;
    for (const AgreedValue& each : of.values) found.emplace(each.name, each.value);
    return found;
}

// Text that says where it ends: its length, then itself.
void put(std::string& bytes, std::string_view text) {
    const std::uint64_t length = text.size();
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes.append(text);
}

std::string_view taken(std::string_view& bytes) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const std::string_view text = bytes.substr(sizeof length, length);
    bytes.remove_prefix(sizeof length + length);
    return text;
}

// Of equal values the same bytes, in whichever order they were said.
std::string encoded(const AgreedValues& of) {
    std::string bytes;
    for (const auto& [name, value] : by_name(of)) {
        put(bytes, name);
        put(bytes, value);
    }
    return bytes;
}

AgreedValues decoded(std::string_view bytes) {
    AgreedValues of{std::string(taken(bytes)), {}};
    while (!bytes.empty()) {
        const std::string_view name = taken(bytes);
        of.values.push_back({std::string(name), std::string(taken(bytes))});
    }
    return of;
}

// Ranks by what they have of a name, the most frequent first; of as many, by rank.
std::vector<std::pair<std::string, Ranks>> parties(const std::string& name,
                                                   std::span<const std::map<std::string, std::string>> of_ranks) {
    std::vector<std::pair<std::string, Ranks>> found;
    for (std::uint32_t rank = 0; rank < of_ranks.size(); ++rank) {
        const auto has = of_ranks[rank].find(name);
        const std::string value = has == of_ranks[rank].end() ? std::string(absent) : has->second;
        const auto party = std::ranges::find(found, value, &std::pair<std::string, Ranks>::first);
        if (party == found.end())
            found.push_back({value, {rank}});
        else
            party->second.push_back(rank);
    }
    std::ranges::stable_sort(found, std::greater<>(), [](const auto& party) { return party.second.size(); });
    return found;
}

std::string people(const Ranks& ranks, std::span<const AgreedValues> of_ranks) {
    std::vector<std::string> named;
    for (const std::uint32_t rank : ranks) named.push_back(fmt::format("{} ({})", rank, of_ranks[rank].host));
    return fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(named, ", "));
}

}  // namespace

// Grouped by who differs, so that a rank of another version is one sentence and not one for each value.
std::string disagreement(std::span<const AgreedValues> of_ranks) {
    std::vector<std::map<std::string, std::string>> all;
    std::map<std::string, bool> names;
    for (const AgreedValues& each : of_ranks) {
        all.push_back(by_name(each));
        for (const auto& [name, value] : all.back()) names[name] = true;
    }
    std::map<Ranks, std::vector<std::string>> differing;
    for (const auto& [name, there] : names) {
        const auto found = parties(name, all);
        for (std::size_t party = 1; party < found.size(); ++party)
            differing[found[party].second].push_back(fmt::format("{} {}, {} {}", name, found[party].first,
                                                                 found.size() > 2             ? "most others have"
                                                                 : found[0].second.size() > 1 ? "the others have"
                                                                                              : "the other has",
                                                                 found[0].first));
    }
    std::vector<std::string> sentences;
    for (const auto& [ranks, what] : differing)
        sentences.push_back(fmt::format("{} differ{}: {}", people(ranks, of_ranks), ranks.size() > 1 ? "" : "s",
                                        fmt::join(what, "; ")));
    return fmt::format("{}", fmt::join(sentences, ". "));
}

void agree(Communicator& communicator, const AgreedValues& own, std::string_view what) {
    if (communicator.ranks() == 1) return;
    const std::string values = encoded(own);
    const XXH128_hash_t hash = XXH3_128bits(values.data(), values.size());
    std::string said;
    put(said, own.host);
    said += values;
    struct Digest {
        std::uint64_t low, high, bytes;
    };
    const Digest mine{hash.low64, hash.high64, said.size()};
    const std::vector<Digest> digests = gathered(communicator, what, mine);
    const auto same = [&](const Digest& each) { return each.low == digests[0].low && each.high == digests[0].high; };
    if (std::ranges::all_of(digests, same)) return;
    const std::uint64_t longest = std::ranges::max_element(digests, {}, &Digest::bytes)->bytes;
    said.resize(longest);
    std::string all(longest * communicator.ranks(), '\0');
    communicator.all_gather("the differences", std::as_bytes(std::span(said)), std::as_writable_bytes(std::span(all)));
    std::vector<AgreedValues> of_ranks;
    for (std::uint32_t rank = 0; rank < communicator.ranks(); ++rank)
        of_ranks.push_back(decoded(std::string_view(all).substr(rank * longest, digests[rank].bytes)));
    throw Error(ExitCode::usage, fmt::format("the processes do not train the same: {}", disagreement(of_ranks)));
}

}  // namespace penstock::zero
