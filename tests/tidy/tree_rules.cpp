#include "tests/tidy/cpp_text.h"
#include "tests/tidy/rules.h"

#include <algorithm>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

namespace penstock::tidy {
namespace {

std::size_t count_including(const Tree& tree, std::string_view header) {
    return static_cast<std::size_t>(std::ranges::count_if(tree, [&](const auto& file) {
        return std::ranges::any_of(includes_of(file.second), [&](const Include& i) { return i.path == header; });
    }));
}

bool is_product_header(std::string_view path) {
    return path.ends_with(".h") && !path.starts_with("tests/") && !path.ends_with("/penstock.h");
}

// A call of penstock_room.
struct Room {
    std::string name;
    std::string folder;  // of its first source
    std::set<std::string> uses;
};

std::vector<Room> rooms_of(const std::string& list_path, const std::string& text) {
    static const std::regex call(R"(\npenstock_room\(\w+ (\w+)(?:\s+USES\s([\w\s]*?))?\s+SOURCES\s+([\w/]+))");
    std::vector<Room> rooms;
    for (std::sregex_iterator it(text.begin(), text.end(), call), end; it != end; ++it) {
        std::istringstream words((*it)[2]);
        rooms.push_back({.name = (*it)[1],
                         .folder = room_of(room_of(list_path) + "/" + (*it)[3].str()),
                         .uses = {std::istream_iterator<std::string>(words), {}}});
    }
    return rooms;
}

// The names of those rooms from which files of `room` include.
std::set<std::string> included_by(const Room& room, const std::vector<Room>& rooms, const Tree& tree) {
    std::set<std::string> names;
    for (const auto& [path, text] : tree) {
        if (room_of(path) != room.folder) continue;
        for (const Include& include : includes_of(text)) {
            const auto from = std::ranges::find(rooms, room_of(include.path), &Room::folder);
            if (from != rooms.end() && from->name != room.name) names.insert(from->name);
        }
    }
    return names;
}

}  // namespace

Complaints check_ring_headers(const Tree& tree) {
    Complaints complaints;
    if (count_including(tree, "liburing.h") != 1) complaints.push_back("<liburing.h> belongs in exactly one file");
    if (count_including(tree, "libaio.h") != 1) complaints.push_back("<libaio.h> belongs in exactly one file");
    return complaints;
}

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

Complaints check_type_names(const Tree& tree) {
    std::map<std::string, std::string> homes;
    Complaints complaints;
    for (const auto& [path, text] : tree) {
        if (!is_product_header(path)) continue;
        for (const Named& type : types_of(text)) {
            const auto [home, first] = homes.try_emplace(type.name, path);
            if (!first && home->second != path) {
                complaints.push_back(path + ":" + std::to_string(type.line) + ": " + type.name + " is a type of " +
                                     home->second + " too");
            }
        }
    }
    return complaints;
}

Complaints check_installed(const Tree& tree) {
    const std::string list_path = "swap/packaging/CMakeLists.txt";
    const auto list = tree.find(list_path);
    if (list == tree.end()) return {list_path + ": not there"};
    const auto installed = [&](std::string_view header) {
        return list->second.find("  " + std::string(header) + "\n") != std::string::npos ||
               list->second.find("  " + std::string(header) + ")") != std::string::npos;
    };
    Complaints complaints;
    for (const auto& [path, text] : tree) {
        if (!path.ends_with(".h") || !installed(path)) continue;
        for (const Include& include : includes_of(text)) {
            if (tree.contains(include.path) && !installed(include.path)) {
                complaints.push_back(path + ":" + std::to_string(include.line) + ": is installed and includes " +
                                     include.path + ", which " + list_path + " does not name");
            }
        }
    }
    return complaints;
}

Complaints check_uses(const Tree& tree) {
    Complaints complaints;
    for (const auto& [path, text] : tree) {
        if (!path.ends_with("/CMakeLists.txt")) continue;
        const std::vector<Room> rooms = rooms_of(path, text);
        for (const Room& room : rooms) {
            const std::set<std::string> included = included_by(room, rooms, tree);
            const auto complain = [&, &room = room](const std::string& used, const char* what) {
                complaints.push_back(path + ": USES of " + room.name + what + used);
            };
            for (const std::string& used : included) {
                if (!room.uses.contains(used)) complain(used, " lacks ");
            }
            for (const std::string& used : room.uses) {
                if (!included.contains(used)) complain(used, " names without an include ");
            }
        }
    }
    return complaints;
}

Complaints check_folders(const Tree& tree) {
    std::map<std::string, std::size_t> files;
    for (const auto& [path, text] : tree) ++files[room_of(path)];
    Complaints complaints;
    for (const auto& [folder, count] : files) {
        if (count > folder_files_max) {
            complaints.push_back(folder + ": " + std::to_string(count) + " files, more than " +
                                 std::to_string(folder_files_max));
        }
    }
    return complaints;
}

}  // namespace penstock::tidy
