// What a library of processes gives beside its collectives: a few short texts that all ranks see, by which one learns
// how another has ended. Of no use for what all ranks do at once: those are collectives.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace penstock::zero {

// Keys and values are text without NUL. A key that was put stays there until the run is over.
//
// Any thread. A call returns or throws within seconds, however long its host is stopped: Error(peer_lost) where the
// board is lost, as with the process that hosts it. Every call behind that one throws.
class Board {
   public:
    static constexpr std::size_t most_key_bytes = 32;
    static constexpr std::size_t most_value_bytes = 1500;

    virtual ~Board() = default;
    // In the place of what stands at the key.
    virtual void put(const std::string& key, const std::string& value) = 0;
    // What stands at the key from now on: `value`, or what was there before. Of several at once one is the first.
    virtual std::string put_first(const std::string& key, const std::string& value) = 0;
    virtual std::optional<std::string> get(const std::string& key) = 0;  // nothing was put there; waits for nobody
};

}  // namespace penstock::zero
