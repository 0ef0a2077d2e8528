#include "bench/optimizer/optimizer_peers.h"

#include "aio/words/error.h"
#include "bench/harness/child.h"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <filesystem>

namespace penstock::bench {
namespace {

using nlohmann::json;

constexpr const char* script = PENSTOCK_PEERS "/optimizer.py";
// Beside the measured time: loading torch, and DeepSpeed's compiler where venv.sh did not run it.
constexpr std::chrono::minutes overhead(15);

}  // namespace

std::string find_python(const std::string& path) {
    std::filesystem::path python = path;
    std::error_code error;
    if (!std::filesystem::exists(script, error))
        throw Error(ExitCode::usage,
                    fmt::format("--peers: {} is not there: it is part of a checkout of Penstock, where "
                                "`./run build` makes a program that finds it",
                                script));
    if (std::filesystem::is_directory(python, error)) python /= "bin/python";
    if (!std::filesystem::is_regular_file(python, error) || ::access(python.c_str(), X_OK) != 0) {
        throw Error(ExitCode::usage, fmt::format("--peers {}: {} is no program; name a Python that has torch and "
                                                 "DeepSpeed, or its environment: bench/peers/venv.sh makes one in "
                                                 ".peers/deepspeed",
                                                 path, python.string()));
    }
    return std::filesystem::absolute(python).string();
}

PeerTimes parse_peers(std::string_view text) {
    try {
        const json root = json::parse(text);
        PeerTimes times;
        for (const json& peer : root.at("peers")) {
            const double seconds = peer.at("seconds").get<double>() / peer.at("steps").get<double>();
            times.peers.push_back({.name = peer.at("name").get<std::string>(), .seconds_per_step = seconds});
            if (!std::isfinite(seconds) || seconds <= 0)
                throw Error(ExitCode::internal, fmt::format("{} took no time", times.peers.back().name));
        }
        times.notes = root.at("notes").get<std::vector<std::string>>();
        return times;
    } catch (const json::exception& error) {
        throw Error(ExitCode::internal, fmt::format("{} printed what is not understood: {}", script, error.what()));
    }
}

PeerTimes time_peers(const std::string& python, const PeerRequest& request, Interruption& stop) {
    const std::vector<std::string> arguments = {python, script, fmt::format("--numel={}", request.numel),
                                                fmt::format("--threads={}", request.threads),
                                                fmt::format("--seconds={}", request.seconds)};
    const ChildOutcome child = run_child(arguments, overhead, stop);
    if (child.exit_status != 0) {
        throw Error(ExitCode::internal, fmt::format("{} {} ended with {}: {}", python, script, child.exit_status,
                                                    child.errors.empty() ? "no words" : child.errors));
    }
    return parse_peers(child.output);
}

}  // namespace penstock::bench
