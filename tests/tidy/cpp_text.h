// C++ as the tidy rules read it: lines, includes, functions and types, by their text alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::tidy {

// The text with comments and literals blanked out; every line keeps its number.
std::string code_of(std::string_view text);

std::vector<std::string> lines_of(std::string_view text);

std::size_t columns_of(std::string_view line);  // UTF-8 code points

struct Include {
    std::string path;
    std::size_t line = 0;
};

std::vector<Include> includes_of(std::string_view text);

struct Span {
    std::size_t first_line = 0;
    std::size_t lines = 0;
};

// From the first line of their head to their closing brace. Not balanced: the braces do not match, which means that
// this reader misunderstood the file.
struct Functions {
    std::vector<Span> spans;
    bool balanced = true;
};

Functions functions_of(std::string_view text);

struct Named {
    std::string name;
    std::size_t line = 0;
};

// The namespaces that a file opens at its outermost level, forward declarations of other layers' types left out.
std::vector<Named> namespaces_of(std::string_view text);

// The classes, structs, enumerations and aliases that a header defines in named namespaces, those within a class left
// out.
std::vector<Named> types_of(std::string_view text);

}  // namespace penstock::tidy
