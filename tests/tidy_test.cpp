// The mechanical rules of the tree, each a pure function from (path, text) to complaints. The cases at the end feed
// each rule what it must refuse: a checker that cannot complain checks nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Complaints = std::vector<std::string>;
using Tree = std::map<std::string, std::string>;  // path from the root of the repository -> text

constexpr std::array folders{"aio", "pinned_pool", "swap", "zero_infinity", "trainer", "bench", "tests"};
constexpr std::size_t file_lines_max = 500;
constexpr std::size_t function_lines_max = 70;
constexpr std::size_t line_columns_max = 120;

// ---------------------------------------------------------------- reading C++

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// A quote within a number (1'000) separates digits; after a letter alone it is a prefixed literal (u8'x').
bool separates_digits(std::string_view text, std::size_t quote) {
    std::size_t begin = quote;
    while (begin > 0 && (is_word(text[begin - 1]) || text[begin - 1] == '\'')) --begin;
    return begin < quote && std::isdigit(static_cast<unsigned char>(text[begin])) != 0;
}

// One past the last character of the comment or literal that begins at `at`; `at` itself where none begins.
std::size_t end_of_blank(std::string_view text, std::size_t at) {
    const auto after = [&](std::string_view closing, std::size_t from) {
        const std::size_t found = text.find(closing, from);
        return found == std::string_view::npos ? text.size() : found + closing.size();
    };
    const std::string_view rest = text.substr(at);
    if (rest.starts_with("//")) return std::min(text.find('\n', at), text.size());
    if (rest.starts_with("/*")) return after("*/", at + 2);
    const bool quote = text[at] == '"' || (text[at] == '\'' && !separates_digits(text, at));
    if (!quote) return at;
    if (text[at] == '"' && at > 0 && text[at - 1] == 'R') {
        const std::size_t open = text.find('(', at);
        if (open != std::string_view::npos) {
            return after(")" + std::string(text.substr(at + 1, open - at - 1)) + "\"", open);
        }
    }
    for (std::size_t i = at + 1; i < text.size(); ++i) {
        if (text[i] == '\\') {
            ++i;
        } else if (text[i] == text[at]) {
            return i + 1;
        }
    }
    return text.size();
}

// The text with comments and literals blanked out; every line keeps its number.
std::string code_of(std::string_view text) {
    std::string code(text);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = end_of_blank(text, at);
        for (std::size_t i = at; i < end; ++i) {
            if (code[i] != '\n') code[i] = ' ';
        }
        at = std::max(end, at + 1);
    }
    return code;
}

std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    std::istringstream in{std::string(text)};
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

std::size_t columns_of(std::string_view line) {  // UTF-8 code points
    return static_cast<std::size_t>(
        std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

struct Include {
    std::string path;
    std::size_t line = 0;
};

std::vector<Include> includes_of(std::string_view text) {
    static const std::regex directive(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
    const std::vector<std::string> lines = lines_of(text);
    const std::vector<std::string> code = lines_of(code_of(text));
    std::vector<Include> found;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::smatch match;
        // A directive in a comment or in a literal is none: its '#' is blank in the code.
        if (code[i].find('#') != std::string::npos && std::regex_search(lines[i], match, directive)) {
            found.push_back({match[1], i + 1});
        }
    }
    return found;
}

std::string blank_directives(std::string code) {
    bool inside = false;
    for (std::size_t at = 0; at < code.size();) {
        const std::size_t end = std::min(code.find('\n', at), code.size());
        const std::size_t first = code.find_first_not_of(" \t", at);
        inside = inside || (first < end && code[first] == '#');
        const bool continued = end > at && code[end - 1] == '\\';
        if (inside) std::fill(code.begin() + static_cast<long>(at), code.begin() + static_cast<long>(end), ' ');
        inside = inside && continued;
        at = end + 1;
    }
    return code;
}

enum class Brace { scope, function, other };  // namespaces and classes; bodies of functions; all else

// What a brace at namespace or class scope opens, told by the text since the last ';', '{' or '}'.
Brace brace_after(std::string head) {
    static const std::regex noise(
        R"(\[\[[^\]]*\]\]|alignas\s*\([^)]*\)|template\s*<[^>]*>|\b(public|private|protected)\s*:(?!:))");
    static const std::regex scope(R"(^\s*(inline\s+)?(namespace|class|struct|union|extern)\b[^(]*$)");
    static const std::regex value(R"((=|,|\breturn)\s*$)");
    head = std::regex_replace(head, noise, " ");
    if (std::regex_search(head, scope)) return Brace::scope;
    if (head.find('(') == std::string::npos || std::regex_search(head, value)) return Brace::other;
    return Brace::function;
}

struct Span {
    std::size_t first_line = 0;
    std::size_t lines = 0;
};

// The functions of a file, from the first line of their head to their closing brace; `balanced` is false where the
// braces do not match, which means that this reader misunderstood the file.
std::vector<Span> functions_of(std::string_view text, bool& balanced) {
    struct Open {
        Brace kind;
        std::size_t first_line;
    };
    const std::string code = blank_directives(code_of(text));
    std::vector<Span> found;
    std::vector<Open> open;
    std::string head;
    std::size_t line = 1, head_line = 1, parentheses = 0;
    balanced = true;
    for (const char c : code) {
        const bool in_scope =
            std::all_of(open.begin(), open.end(), [](const Open& o) { return o.kind == Brace::scope; });
        if (c == '\n') ++line;
        if (c == '(') ++parentheses;
        if (c == ')' && parentheses > 0) --parentheses;
        if (c == '{') {
            const bool decides = in_scope && parentheses == 0;
            open.push_back({decides ? brace_after(head) : Brace::other, head_line});
        } else if (c == '}') {
            if (open.empty()) {
                balanced = false;
                return found;
            }
            if (open.back().kind == Brace::function)
                found.push_back({open.back().first_line, line - open.back().first_line + 1});
            open.pop_back();
        }
        if (c == '{' || c == '}' || (c == ';' && parentheses == 0)) {
            head.clear();
        } else if (!head.empty() || std::isspace(static_cast<unsigned char>(c)) == 0) {
            if (head.empty()) head_line = line;
            head += c;
        }
    }
    balanced = open.empty();
    return found;
}

// ---------------------------------------------------------------- the rules on one file

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

struct HeavyHeader {
    const char* include;     // expression for the path in the directive
    const char* allowed_in;  // expression for the path of the file
    const char* rule;
};

const std::array heavy_headers{
    HeavyHeader{R"(^(cuda|cublas|curand|nvtx|nvml|cufile).*\.h$|^(c10|ATen|torch/csrc)/cuda/)",
                R"((_cuda|_cuda_test)\.cpp$|\.cuh?$|^tests/.*fake_cuda)", "CUDA headers only in *_cuda.cpp and .cu"},
    HeavyHeader{R"(^liburing)", R"(^aio/uring_backend\.cpp$)", "liburing only in aio/uring_backend.cpp"},
    HeavyHeader{R"(^libaio\.h$)", R"(^aio/libaio_backend\.cpp$)", "libaio only in aio/libaio_backend.cpp"},
    HeavyHeader{R"(^nccl.*\.h$)", R"((_nccl|_nccl_test)\.cpp$)", "NCCL only in *_nccl.cpp"},
    HeavyHeader{R"(^mpi\.h$)", R"((_mpi|_mpi_test)\.cpp$)", "MPI only in *_mpi.cpp"},
    HeavyHeader{R"(^(torch|ATen|c10)/)", R"(^(zero_infinity/engine|trainer|tests|bench)/)",
                "torch only in zero_infinity/engine, trainer and tests"},
    HeavyHeader{
        R"(^nlohmann/json\.hpp$)", R"(^((trainer|tests|bench)/.*|aio/profile)\.cpp$)",
        "json only in .cpp files of the trainer, bench and tests, and in aio/profile.cpp (json_fwd.hpp is light)"},
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

Complaints check_lengths(const std::string& path, const std::string& text) {
    Complaints complaints;
    const std::vector<std::string> lines = lines_of(text);
    if (lines.size() > file_lines_max) {
        complaints.push_back(at_line(path, lines.size(), "the file has more than 500 lines"));
    }
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (columns_of(lines[i]) > line_columns_max) {
            complaints.push_back(at_line(path, i + 1, "the line has more than 120 columns"));
        }
    }
    bool balanced = true;
    for (const Span& function : functions_of(text, balanced)) {
        if (function.lines > function_lines_max) {
            complaints.push_back(
                at_line(path, function.first_line,
                        "the function has " + std::to_string(function.lines) + " lines, more than 70"));
        }
    }
    if (!balanced) complaints.push_back(at_line(path, 1, "the braces do not match; tidy_test cannot read the file"));
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

Complaints check_file(const std::string& path, const std::string& text) {
    Complaints all;
    for (const auto& rule : {check_direction, check_heavy_headers, check_lengths, check_words}) {
        std::ranges::move(rule(path, text), std::back_inserter(all));
    }
    return all;
}

// ---------------------------------------------------------------- the rules on the whole tree

std::size_t count_including(const Tree& tree, std::string_view header) {
    return static_cast<std::size_t>(std::ranges::count_if(tree, [&](const auto& file) {
        return std::ranges::any_of(includes_of(file.second), [&](const Include& i) { return i.path == header; });
    }));
}

Complaints check_ring_headers(const Tree& tree) {
    Complaints complaints;
    if (count_including(tree, "liburing.h") != 1) complaints.push_back("<liburing.h> belongs in exactly one file");
    if (count_including(tree, "libaio.h") != 1) complaints.push_back("<libaio.h> belongs in exactly one file");
    return complaints;
}

// A source that no CMakeLists.txt of its folder or above names is not built; a test that is not built proves nothing.
Complaints check_listed(const Tree& tree) {
    Complaints complaints;
    for (const auto& [path, text] : tree) {
        if (!path.ends_with(".cpp") && !path.ends_with(".cu")) continue;
        bool listed = false;
        for (std::size_t slash = path.rfind('/'); slash != std::string::npos && !listed;
             slash = path.rfind('/', slash - 1)) {
            const auto list = tree.find(path.substr(0, slash) + "/CMakeLists.txt");
            const std::string name = path.substr(slash + 1);
            listed = list != tree.end() &&
                     std::regex_search(list->second, std::regex("(^|[\\s\"(/])" + name + "([\\s\")]|$)"));
            if (slash == 0) break;
        }
        if (!listed) complaints.push_back(path + ": no CMakeLists.txt names it");
    }
    return complaints;
}

Tree read_tree(const std::filesystem::path& root) {
    static const std::regex wanted(R"(\.(cpp|h|cu|cuh)$|/CMakeLists\.txt$)");
    Tree tree;
    for (const char* folder : folders) {
        if (!std::filesystem::is_directory(root / folder)) continue;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
            const std::string path = std::filesystem::relative(entry.path(), root).generic_string();
            if (!entry.is_regular_file() || !std::regex_search(path, wanted)) continue;
            std::ifstream in(entry.path(), std::ios::binary);
            tree[path] = {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
        }
    }
    return tree;
}

std::string joined(const Complaints& complaints) {
    std::string text;
    for (const std::string& complaint : complaints) text += complaint + "\n";
    return text;
}

// ---------------------------------------------------------------- this tree

TEST(Tidy, EveryFileObeysTheRules) {
    const Tree tree = read_tree(PENSTOCK_SOURCE_DIR);
    ASSERT_TRUE(tree.contains("tests/tidy_test.cpp")) << "the tree was not found";
    Complaints complaints;
    for (const auto& [path, text] : tree) {
        if (!path.ends_with("CMakeLists.txt"))
            std::ranges::move(check_file(path, text), std::back_inserter(complaints));
    }
    EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

TEST(Tidy, RingHeadersAreInOneFileEach) {
    const Complaints complaints = check_ring_headers(read_tree(PENSTOCK_SOURCE_DIR));
    EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

TEST(Tidy, EverySourceIsListedInCMake) {
    const Complaints complaints = check_listed(read_tree(PENSTOCK_SOURCE_DIR));
    EXPECT_TRUE(complaints.empty()) << joined(complaints);
}

// ---------------------------------------------------------------- negative controls

bool refuses(const std::string& path, const std::string& text) {
    return !check_file(path, text).empty();
}

std::string function_with_lines(std::size_t lines) {
    std::string text = "namespace x {\nint f(int a) {\n";
    for (std::size_t i = 2; i < lines; ++i) text += "    if (a) { a += '{'; }  // }}}\n";
    return text + "}\n}\n";
}

TEST(TidyChecker, RefusesIncludesToTheRight) {
    EXPECT_TRUE(refuses("aio/io.cpp", "#include \"pinned_pool/region.h\"\n"));
    EXPECT_TRUE(refuses("swap/layout.h", "#  include <zero_infinity/plan.h>\n"));
    EXPECT_TRUE(refuses("zero_infinity/plan.h", "#include \"zero_infinity/engine/engine.h\"\n"));
    EXPECT_TRUE(refuses("trainer/main.cpp", "#include \"tests/fakes.h\"\n"));
    EXPECT_TRUE(refuses("bench/main.cpp", "#include \"tests/fakes.h\"\n"));
    EXPECT_TRUE(refuses("tests/aio/io_test.cpp", "#include \"bench/report.h\"\n"));
    EXPECT_FALSE(refuses("tests/bench/report_test.cpp", "#include \"bench/report.h\"\n"));
    EXPECT_FALSE(refuses("swap/layout.cpp", "#include \"swap/layout.h\"\n#include \"aio/io.h\"\n#include <vector>\n"));
    EXPECT_FALSE(
        refuses("aio/io.cpp", "// #include \"swap/layout.h\"\nauto s = R\"(\n#include \"swap/layout.h\"\n)\";\n"));
}

TEST(TidyChecker, RefusesHeavyHeadersOutsideTheirFiles) {
    EXPECT_TRUE(refuses("pinned_pool/region.cpp", "#include <cuda_runtime.h>\n"));
    EXPECT_TRUE(refuses("zero_infinity/engine/device.cpp", "#include <c10/cuda/CUDAStream.h>\n"));
    EXPECT_TRUE(refuses("aio/io.cpp", "#include <liburing.h>\n"));
    EXPECT_TRUE(refuses("aio/uring_backend.cpp", "#include <libaio.h>\n"));
    EXPECT_TRUE(refuses("zero_infinity/engine/comm.cpp", "#include <nccl.h>\n"));
    EXPECT_TRUE(refuses("zero_infinity/comm.cpp", "#include <mpi.h>\n"));
    EXPECT_TRUE(refuses("zero_infinity/plan.cpp", "#include <ATen/ATen.h>\n"));
    EXPECT_TRUE(refuses("swap/tensor_store.cpp", "#include <spdlog/spdlog.h>\n"));
    EXPECT_TRUE(refuses("trainer/config.h", "#include <nlohmann/json.hpp>\n"));
    EXPECT_TRUE(refuses("aio/io.cpp", "#include <nlohmann/json.hpp>\n"));
    EXPECT_TRUE(refuses("aio/profile.h", "#include <nlohmann/json.hpp>\n"));
    EXPECT_FALSE(refuses("aio/profile.cpp", "#include <nlohmann/json.hpp>\n"));
    EXPECT_FALSE(refuses("trainer/config.h", "#include <nlohmann/json_fwd.hpp>\n#include <spdlog/fwd.h>\n"));
    EXPECT_FALSE(refuses("pinned_pool/region_cuda.cpp", "#include <cuda_runtime_api.h>\n"));
    EXPECT_FALSE(refuses("zero_infinity/engine/session.cpp", "#include <torch/types.h>\n"));
}

TEST(TidyChecker, RefusesARingHeaderInTwoFilesOrInNone) {
    const std::string ring = "#include <liburing.h>\n";
    const std::string aio = "#include <libaio.h>\n";
    EXPECT_TRUE(check_ring_headers({{"aio/a.cpp", ring}, {"aio/b.cpp", aio}}).empty());
    EXPECT_FALSE(check_ring_headers({{"aio/a.cpp", ring}, {"aio/b.cpp", aio}, {"swap/c.cpp", ring}}).empty());
    EXPECT_FALSE(check_ring_headers({{"aio/a.cpp", ring}, {"aio/b.cpp", aio}, {"swap/c.cpp", aio}}).empty());
    EXPECT_FALSE(check_ring_headers({{"aio/b.cpp", aio}}).empty());
    EXPECT_FALSE(check_ring_headers({{"aio/a.cpp", ring}}).empty());
}

TEST(TidyChecker, RefusesWhatIsTooLong) {
    EXPECT_FALSE(refuses("aio/a.cpp", function_with_lines(function_lines_max)));
    EXPECT_TRUE(refuses("aio/a.cpp", function_with_lines(function_lines_max + 1)));
    EXPECT_FALSE(refuses("aio/a.cpp", std::string(line_columns_max, '/') + "\n"));
    EXPECT_TRUE(refuses("aio/a.cpp", std::string(line_columns_max + 1, '/') + "\n"));
    EXPECT_FALSE(refuses(
        "aio/a.cpp", "// " + std::string(100, ' ') + "\xE2\x89\xA4\xE2\x89\xA4\xE2\x89\xA4\xE2\x89\xA4\xE2\x89\xA4\n"));
    EXPECT_FALSE(refuses("aio/a.cpp", std::string(file_lines_max, '\n')));
    EXPECT_TRUE(refuses("aio/a.cpp", std::string(file_lines_max + 1, '\n')));
}

TEST(TidyChecker, FindsFunctionsInClassesAndPassesOverTheRest) {
    const std::string filler(80, '\n');
    EXPECT_TRUE(refuses("aio/a.h",
                        "class A {\n public:\n  template <class T>\n  A(T t) : b_{t}, c_(1) {" + filler + "}\n};\n"));
    EXPECT_TRUE(refuses("tests/a_test.cpp", "TEST(A, B) {" + filler + "}\n"));
    EXPECT_TRUE(refuses("aio/a.cpp", "auto f() -> int\n{" + filler + "}\n"));
    EXPECT_FALSE(refuses("aio/a.h", "struct alignas(64) A : B<int> {" + filler + "};\n"));
    EXPECT_FALSE(refuses("aio/a.cpp", "const std::function<void(int)> table[] = {" + filler + "};\n"));
    EXPECT_FALSE(refuses("aio/a.cpp", "enum class E {" + filler + "};\nint big = 1'000'000;\n"));
    EXPECT_TRUE(refuses("aio/a.cpp", "void f() {\n"));
}

TEST(TidyChecker, RefusesForbiddenWords) {
    EXPECT_TRUE(refuses("aio/a.cpp",
                        "// TO"
                        "DO later\n"));
    EXPECT_TRUE(refuses("aio/a.cpp", "void f() { assert(true); }\n"));
    EXPECT_TRUE(refuses("swap/a.cpp", "auto home = std::getenv(\"HOME\");\n"));
    EXPECT_TRUE(refuses("aio/a.cpp", "#ifdef PENSTOCK_HAVE_CUDA\n#endif\n"));
    EXPECT_TRUE(refuses("trainer/a.cpp", "#if defined(USE_CUDA)\n#endif\n"));
    EXPECT_FALSE(refuses("trainer/a.cpp", "auto home = std::getenv(\"HOME\");\nstatic_assert(true);\n"));
    EXPECT_FALSE(refuses("aio/a.cpp", "// assert( is off in release builds\n#ifdef __AVX512F__\n#endif\n"));
}

TEST(TidyChecker, RefusesASourceThatNoListNames) {
    const Tree listed{{"tests/aio/io_test.cpp", ""},
                      {"tests/aio/CMakeLists.txt", "penstock_test(aio FILES io_test.cpp)"}};
    const Tree longer_name{{"tests/aio/io_test.cpp", ""}, {"tests/aio/CMakeLists.txt", "FILES my_io_test.cpp)"}};
    const Tree in_parent{{"swap/x/a.cpp", ""}, {"swap/CMakeLists.txt", "SOURCES x/a.cpp\n"}};
    EXPECT_TRUE(check_listed(listed).empty());
    EXPECT_TRUE(check_listed(in_parent).empty());
    EXPECT_FALSE(check_listed(longer_name).empty());
    EXPECT_FALSE(check_listed({{"aio/io.cpp", ""}}).empty());
}

}  // namespace
