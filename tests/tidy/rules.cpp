#include "tests/tidy/rules.h"

#include "tests/tidy/cpp_text.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <regex>
#include <string_view>

namespace penstock::tidy {
namespace {

constexpr std::array folders{"aio", "pinned_pool", "swap", "zero_infinity", "trainer", "bench", "tests"};

std::string folder_of(std::string_view path) {
    return std::string(path.substr(0, path.find('/')));
}

// Position in the order aio < pinned_pool < swap < zero_infinity < trainer; bench and tests come after all.
int rank_of(std::string_view folder) {
    const auto* found = std::find(folders.begin(), folders.end(), folder);
    return found == folders.end() ? -1 : static_cast<int>(found - folders.begin());
}

std::string at_line(std::string_view path, std::size_t line, std::string_view what) {
    return std::string(path) + ":" + std::to_string(line) + ": " + std::string(what);
}

Complaints check_direction(const std::string& path, const std::string& text) {
    Complaints complaints;
    const std::string folder = folder_of(path);
    const bool product = folder != "tests" && folder != "bench";
    const bool core = folder == "zero_infinity" && !path.starts_with("zero_infinity/engine/");
    for (const Include& include : includes_of(text)) {
        const std::string target = folder_of(include.path);
        if (rank_of(target) < 0) continue;
        if (product && rank_of(target) > rank_of(folder)) {
            complaints.push_back(at_line(path, include.line, "includes to the right: " + include.path));
        }
        const bool own_tests = target == "bench" && path.starts_with("tests/bench/");
        if (!product && folder != target && !own_tests && (target == "tests" || target == "bench")) {
            complaints.push_back(at_line(path, include.line, "nothing includes tests or bench: " + include.path));
        }
        if (core && include.path.starts_with("zero_infinity/engine/")) {
            complaints.push_back(at_line(path, include.line, "the core includes the engine: " + include.path));
        }
    }
    return complaints;
}

// The rooms of each layer, in the order in which they may include each other: only to the left.
const std::array<std::vector<std::string_view>, 6> rooms{{
    {"aio/words", "aio", "aio/backend"},
    {"pinned_pool/opened", "pinned_pool"},
    {"swap/format", "swap/directory", "swap/hashing", "swap/blocks", "swap/store", "swap/spill", "swap/snapshot",
     "swap/capi"},
    {"zero_infinity/threads",     "zero_infinity/kernels",    "zero_infinity/codec",     "zero_infinity/device",
     "zero_infinity/optimizer",   "zero_infinity/layout",     "zero_infinity/order",     "zero_infinity/plan",
     "zero_infinity/plan/ranks",  "zero_infinity/keys",       "zero_infinity/forecast",  "zero_infinity/ranks",
     "zero_infinity/ranks/watch", "zero_infinity/ranks/capi", "zero_infinity/ranks/mpi", "zero_infinity/weights",
     "zero_infinity/trace",       "zero_infinity/memory",     "zero_infinity/driver",    "zero_infinity/gradients",
     "zero_infinity/session",     "zero_infinity/measure",    "zero_infinity/capi",      "zero_infinity/engine/torch",
     "zero_infinity/engine/room", "zero_infinity/engine"},
    {"trainer/cli", "trainer/models", "trainer/config", "trainer/capi", "trainer/data", "trainer/trace",
     "trainer/ranks", "trainer/start", "trainer/plan", "trainer/ckpt", "trainer/run", "trainer"},
    {"bench/harness", "bench/io", "bench/swap", "bench/transfer", "bench/step", "bench/optimizer", "bench/ranks",
     "bench"},
}};

Complaints check_rooms(const std::string& path, const std::string& text) {
    const std::string room = room_of(path);
    const auto layer =
        std::ranges::find_if(rooms, [&](const auto& row) { return folder_of(row.front()) == folder_of(path); });
    if (layer == rooms.end() || path.find("/examples/") != std::string::npos) return {};
    const auto place = [&](std::string_view of) { return std::ranges::find(*layer, of); };
    if (place(room) == layer->end()) return {path + ": no such room in tests/tidy/rules.cpp"};
    Complaints complaints;
    for (const Include& include : includes_of(text)) {
        const auto target = place(room_of(include.path));
        if (target != layer->end() && target > place(room)) {
            complaints.push_back(at_line(path, include.line, "a room to the right: " + include.path));
        }
    }
    return complaints;
}

struct LayerNamespace {
    const char* prefix;  // of the path
    const char* name;
};

const std::array layer_namespaces{
    LayerNamespace{"aio/", "penstock::aio"},
    LayerNamespace{"pinned_pool/", "penstock::pool"},
    LayerNamespace{"swap/", "penstock::store"},
    LayerNamespace{"zero_infinity/engine/", "penstock::engine"},
    LayerNamespace{"zero_infinity/", "penstock::zero"},
    LayerNamespace{"trainer/", "penstock::trainer"},
    LayerNamespace{"bench/", "penstock::bench"},
};

// The words of every layer: errors, checks, counts of bytes, the words of enums.
const std::regex common_words(R"(^aio/words/(error|check|byte_count|enum_words|spare_text)\.(h|cpp)$)");

Complaints check_namespace(const std::string& path, const std::string& text) {
    const auto layer =
        std::ranges::find_if(layer_namespaces, [&](const auto& l) { return path.starts_with(l.prefix); });
    if (layer == layer_namespaces.end()) return {};
    const std::string wanted = std::regex_search(path, common_words) ? "penstock" : layer->name;
    Complaints complaints;
    for (const Named& opened : namespaces_of(text)) {
        if (opened.name.starts_with("penstock") && opened.name != wanted) {
            complaints.push_back(at_line(path, opened.line, "namespace " + opened.name + " instead of " + wanted));
        }
    }
    return complaints;
}

struct HeavyHeader {
    const char* include;     // expression for the path in the directive
    const char* allowed_in;  // expression for the path of the file
    const char* rule;
};

const std::array heavy_headers{
    HeavyHeader{R"(^(cuda|cublas|curand|nvtx|nvml|cufile).*\.h$|^(c10|ATen|torch/csrc)/cuda/)",
                R"((_cuda|_cuda_test)\.cpp$|\.cuh?$|^tests/.*fake_cuda)", "CUDA headers only in *_cuda.cpp and .cu"},
    HeavyHeader{R"(^liburing)", R"(^aio/backend/uring_backend\.cpp$)",
                "liburing only in aio/backend/uring_backend.cpp"},
    HeavyHeader{R"(^libaio\.h$)", R"(^aio/backend/libaio_backend\.cpp$)",
                "libaio only in aio/backend/libaio_backend.cpp"},
    HeavyHeader{R"(^nccl.*\.h$)", R"((_nccl|_nccl_test)\.cpp$)", "NCCL only in *_nccl.cpp"},
    HeavyHeader{R"(^mpi\.h$)", R"(_mpi\.(h|cpp)$)", "MPI only in *_mpi.cpp and *_mpi.h"},
    HeavyHeader{R"(^(torch|ATen|c10)/)", R"(^(zero_infinity/engine|trainer|tests|bench)/)",
                "torch only in zero_infinity/engine, trainer and tests"},
    HeavyHeader{R"(^nlohmann/json\.hpp$)", R"(^((trainer|tests|bench|zero_infinity/keys)/.*|aio/profile)\.cpp$)",
                "json only in .cpp files of zero_infinity/keys, the trainer, bench and tests, and in aio/profile.cpp "
                "(json_fwd.hpp is light)"},
    HeavyHeader{R"(^(CLI/|spdlog/(?!fwd\.h)))", R"(^(trainer|tests|bench)/.*\.cpp$)",
                "CLI11 and spdlog only in .cpp files of the trainer, bench and tests (spdlog/fwd.h is light)"},
};

Complaints check_heavy_headers(const std::string& path, const std::string& text) {
    Complaints complaints;
    for (const Include& include : includes_of(text)) {
        for (const HeavyHeader& heavy : heavy_headers) {
            const bool meant = std::regex_search(include.path, std::regex(heavy.include));
            if (meant && !std::regex_search(path, std::regex(heavy.allowed_in))) {
                complaints.push_back(at_line(path, include.line, include.path + ": " + heavy.rule));
            }
        }
    }
    return complaints;
}

std::size_t lines_max_of(const std::string& path) {
    static const std::regex of_c(R"(^[a-z_]+/capi/penstock\w*\.h$)");
    const bool long_one = path.starts_with("tests/") || std::regex_search(path, of_c);
    return long_one ? long_file_lines_max : file_lines_max;
}

Complaints check_lengths(const std::string& path, const std::string& text) {
    Complaints complaints;
    const std::vector<std::string> lines = lines_of(text);
    if (const std::size_t most = lines_max_of(path); lines.size() > most) {
        complaints.push_back(at_line(path, lines.size(), "the file has more than " + std::to_string(most) + " lines"));
    }
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (columns_of(lines[i]) > line_columns_max) {
            complaints.push_back(at_line(path, i + 1, "the line has more than 120 columns"));
        }
    }
    const Functions functions = functions_of(text);
    for (const Span& function : functions.spans) {
        if (function.lines > function_lines_max) {
            complaints.push_back(
                at_line(path, function.first_line,
                        "the function has " + std::to_string(function.lines) + " lines, more than 70"));
        }
    }
    if (!functions.balanced)
        complaints.push_back(at_line(path, 1, "the braces do not match; tidy cannot read the file"));
    return complaints;
}

Complaints check_words(const std::string& path, const std::string& text) {
    static const std::regex unfinished(
        "\\b(TO"
        "DO|FIX"
        "ME)\\b");
    static const std::regex plain_assert(R"((^|[^\w])assert\s*\()");
    static const std::regex environment(R"(\b(secure_)?getenv\b)");
    static const std::regex optional_part(
        R"(^\s*#\s*(if|ifdef|ifndef|elif)\b.*(PENSTOCK_(HAVE|WITH|USE|CUDA)|USE_(CUDA|NCCL|MPI)))");
    const bool below_trainer = rank_of(folder_of(path)) < rank_of("trainer");
    const bool optional_half = std::regex_search(path, std::regex(R"(_(cuda|nccl|mpi)\.cpp$|\.cuh?$)"));
    const std::vector<std::string> lines = lines_of(text);
    const std::vector<std::string> code = lines_of(code_of(text));
    Complaints complaints;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const auto complain = [&](const char* what) { complaints.push_back(at_line(path, i + 1, what)); };
        if (std::regex_search(lines[i], unfinished)) complain("unfinished work belongs in an issue");
        if (std::regex_search(code[i], plain_assert)) complain("PENSTOCK_CHECK is always on, assert is not");
        if (below_trainer && std::regex_search(code[i], environment)) complain("no environment below the trainer");
        if (!optional_half && std::regex_search(code[i], optional_part)) {
            complain("optional parts are chosen by the linker, not by #ifdef");
        }
    }
    return complaints;
}

// What decides, and may be replayed: by what it is given alone.
Complaints check_pure(const std::string& path, const std::string& text) {
    static const std::regex pure(R"(^zero_infinity/(layout|order|plan|forecast)/)");
    static const std::regex read(
        R"(\b(MachineMemory|UsableCores|MachineRoom)::read\b|\bfree_device_bytes\b|_clock::now\b)");
    if (!std::regex_search(path, pure) || path == "zero_infinity/plan/machine_room.cpp") return {};
    const std::vector<std::string> code = lines_of(code_of(text));
    Complaints complaints;
    for (std::size_t i = 0; i < code.size(); ++i)
        if (std::regex_search(code[i], read))
            complaints.push_back(at_line(path, i + 1, "a plan reads neither the machine nor a clock: hand it over"));
    return complaints;
}

}  // namespace

std::string room_of(std::string_view path) {
    return std::string(path.substr(0, path.rfind('/')));
}

Complaints check_file(const std::string& path, const std::string& text) {
    Complaints all;
    for (const auto& rule :
         {check_direction, check_rooms, check_namespace, check_heavy_headers, check_lengths, check_words, check_pure}) {
        std::ranges::move(rule(path, text), std::back_inserter(all));
    }
    return all;
}

}  // namespace penstock::tidy
