// Other people's optimizers, timed by bench/peers/optimizer.py in a Python that has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::bench {

class Interruption;

struct PeerRequest {
    std::uint64_t numel = 0;  // of one fp32 parameter, with fp32 gradient and moments
    unsigned threads = 1;
    double seconds = 0;  // of each peer
};

struct PeerTime {
    std::string name;  // "torch 2.11.0 fused AdamW"
    double seconds_per_step = 0;
};

struct PeerTimes {
    std::vector<PeerTime> peers;
    std::vector<std::string> notes;  // who is left out, and why
};

// `path`: the interpreter, or the folder of a virtual environment (bench/peers/venv.sh makes one). Throws Error
// (usage).
std::string find_python(const std::string& path);

// Runs the script once, which times each peer in turn. Throws Error: internal (it failed; its own words), interrupted.
PeerTimes time_peers(const std::string& python, const PeerRequest& request, Interruption& stop);

// What the script prints. Throws Error (internal).
PeerTimes parse_peers(std::string_view json);

}  // namespace penstock::bench
