#include "trainer/start/bits_beside.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

namespace penstock::trainer {
namespace {

constexpr std::string_view prefix = "bits.";

// oneDNN, MKL and torch choose their kernels by these, where the user does not leave it to them.
constexpr std::array variables{"ONEDNN_MAX_CPU_ISA",
                               "DNNL_MAX_CPU_ISA",
                               "ONEDNN_DEFAULT_FPMATH_MODE",
                               "DNNL_DEFAULT_FPMATH_MODE",
                               "MKL_CBWR",
                               "MKL_ENABLE_INSTRUCTIONS",
                               "MKL_DEBUG_CPU_TYPE",
                               "NVIDIA_TF32_OVERRIDE",
                               "CUBLAS_WORKSPACE_CONFIG",
                               "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"};

// What the libraries have kernels of their own for.
constexpr std::array<std::string_view, 13> instructions{
    "avx",      "f16c",        "avx2",        "fma",      "avx_vnni", "avx512f",    "avx512bw",
    "avx512vl", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_tile", "avx512_fp16"};

struct Processor {
    std::string name;
    std::vector<std::string> instructions;
};

std::string after_colon(const std::string& line) {
    const std::size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
}

// Of the first core. Where /proc has no name (arm64), the machine's.
Processor this_processor() {
    Processor found;
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line) && !line.empty();) {
        if (line.starts_with("model name")) found.name = after_colon(line);
        if (!line.starts_with("flags")) continue;
        std::istringstream words(after_colon(line));
        for (std::string word; words >> word;)
            if (std::find(instructions.begin(), instructions.end(), word) != instructions.end())
                found.instructions.push_back(word);
    }
    utsname machine{};
    if (found.name.empty() && ::uname(&machine) == 0) found.name = machine.machine;
    std::sort(found.instructions.begin(), found.instructions.end());
    return found;
}

// Anybody may have written it.
std::string shown(std::string text) {
    constexpr std::size_t longest = 200;
    text.resize(std::min(text.size(), longest));
    for (char& each : text)
        if (each < ' ' || each > '~') each = '?';
    return text;
}

}  // namespace

store::ClientState bits_beside(zero::DeviceKind device) {
    const Processor processor = this_processor();
    store::ClientState bits;
    const auto put = [&](const std::string& name, std::string text) {
        bits[std::string(prefix) + name] = std::move(text);
    };
    put("processor", processor.name);
    put("instructions", fmt::format("{}", fmt::join(processor.instructions, " ")));
    put("torch", TORCH_VERSION);
    put("torch_instructions", at::get_cpu_capability());  // of the processor, or of ATEN_CPU_CAPABILITY
    put("onednn", at::get_mkldnn_version());
    put("mkl", at::get_mkl_version());
    // An emulated device computes as the processor does.
    put("device", device == zero::DeviceKind::cuda ? "cuda" : "cpu");
    for (const char* name : variables) {
        const char* value = std::getenv(name);
        put(name, value == nullptr ? "not set" : value);
    }
    return bits;
}

std::vector<std::string> changed_bits(const store::ClientState& stored, const store::ClientState& now) {
    std::vector<std::string> lines;
    for (const auto& [key, text] : now) {
        const auto before = stored.find(key);
        if (before == stored.end() || before->second == text) continue;
        lines.push_back(
            fmt::format("{} was \"{}\" and is \"{}\": from here on the bits may be others than those of the "
                        "run that was not interrupted",
                        key.substr(prefix.size()), shown(before->second), shown(text)));
    }
    return lines;
}

}  // namespace penstock::trainer
