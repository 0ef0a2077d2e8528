#include "tests/tidy/cpp_text.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>

namespace penstock::tidy {

namespace {

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

}  // namespace

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

namespace {

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

}  // namespace

Functions functions_of(std::string_view text) {
    struct Open {
        Brace kind;
        std::size_t first_line;
    };
    const std::string code = blank_directives(code_of(text));
    Functions found;
    std::vector<Open> open;
    std::string head;
    std::size_t line = 1, head_line = 1, parentheses = 0;
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
                found.balanced = false;
                return found;
            }
            if (open.back().kind == Brace::function)
                found.spans.push_back({open.back().first_line, line - open.back().first_line + 1});
            open.pop_back();
        }
        if (c == '{' || c == '}' || (c == ';' && parentheses == 0)) {
            head.clear();
        } else if (!head.empty() || std::isspace(static_cast<unsigned char>(c)) == 0) {
            if (head.empty()) head_line = line;
            head += c;
        }
    }
    found.balanced = open.empty();
    return found;
}

std::vector<Named> namespaces_of(std::string_view text) {
    static const std::regex opening(R"(^namespace ([\w:]+) \{)");
    static const std::regex forward(R"(^\s*((class|struct|enum class) \w+;)?\s*$)");
    const std::vector<std::string> code = lines_of(code_of(text));
    std::vector<Named> found;
    for (std::size_t i = 0; i < code.size(); ++i) {
        std::smatch match;
        if (!std::regex_search(code[i], match, opening)) continue;
        std::size_t end = i + 1;
        while (end < code.size() && std::regex_search(code[end], forward)) ++end;
        const bool only_forward = end > i + 1 && end < code.size() && code[end].starts_with("}");
        if (!only_forward) found.push_back({match[1], i + 1});
    }
    return found;
}

std::vector<Named> types_of(std::string_view text) {
    static const std::regex named_namespace(R"(^\s*(inline\s+)?namespace\s+\w)");
    static const std::regex type(
        R"(^\s*(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+(\w+)\s*(?:final\s*)?(?::[^:]|$))");
    static const std::regex alias(R"(^\s*using\s+(\w+)\s*=)");
    static const std::regex noise(R"(\[\[[^\]]*\]\]|alignas\s*\([^)]*\)|template\s*<[^>]*>)");
    std::vector<Named> found;
    std::vector<bool> open;  // whether each is a named namespace
    std::string head;
    std::size_t line = 1;
    const auto take = [&](const std::regex& wanted) {
        std::smatch match;
        if (std::regex_search(head, match, wanted)) found.push_back({match[1], line});
    };
    for (const char c : blank_directives(code_of(text))) {
        if (c == '\n') ++line;
        const bool outermost = std::ranges::all_of(open, [](bool named) { return named; });
        if (c == '{' || c == ';') head = std::regex_replace(head, noise, " ");
        if (c == '{') {
            if (outermost) take(type);
            open.push_back(std::regex_search(head, named_namespace));
        }
        if (c == ';' && outermost) take(alias);
        if (c == '}' && !open.empty()) open.pop_back();
        if (c == '{' || c == '}' || c == ';') {
            head.clear();
        } else {
            head += c;
        }
    }
    return found;
}

}  // namespace penstock::tidy
