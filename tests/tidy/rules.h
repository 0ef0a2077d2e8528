// The mechanical rules of the tree, each a pure function from paths and texts to complaints.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::tidy {

using Complaints = std::vector<std::string>;
using Tree = std::map<std::string, std::string>;  // path from the root of the repository -> text

inline constexpr std::size_t file_lines_max = 400;
inline constexpr std::size_t long_file_lines_max = 500;  // of tests, and of a header for C, which is its own page
inline constexpr std::size_t function_lines_max = 70;
inline constexpr std::size_t line_columns_max = 120;
inline constexpr std::size_t folder_files_max = 25;

// The folder that a file lies in: "swap/store" of "swap/store/commit.cpp".
std::string room_of(std::string_view path);

// What one file can break: direction of includes between layers and rooms, its namespace, heavy headers, lengths,
// forbidden words.
Complaints check_file(const std::string& path, const std::string& text);

// <liburing.h> and <libaio.h> are included by one file each.
Complaints check_ring_headers(const Tree& tree);

// A source that no CMakeLists.txt of its folder or above names is not built; a test that is not built proves nothing.
Complaints check_listed(const Tree& tree);

// A type's name stands once in the headers of the program: the same one twice, in namespaces that are both in use,
// reads as one thing and is two.
Complaints check_type_names(const Tree& tree);

// A header that is installed for other programs includes, of the project, what is installed, too.
Complaints check_installed(const Tree& tree);

// What a CMakeLists.txt says that a room USES is what its files include from: the linker gives it that and no more.
Complaints check_uses(const Tree& tree);

// A folder of more files is no room but a store.
Complaints check_folders(const Tree& tree);

}  // namespace penstock::tidy
