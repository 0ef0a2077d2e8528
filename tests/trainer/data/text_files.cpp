#include "tests/trainer/data/text_files.h"

#include <nlohmann/json.hpp>

#include <array>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <stdexcept>

namespace penstock::testing {

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::vector<nlohmann::json> read_json_lines(const std::string& path) {
    std::istringstream lines(read_file(path));
    std::vector<nlohmann::json> objects;
    for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
    return objects;
}

std::string toy_text(std::size_t bytes, unsigned seed) {
    constexpr std::array words = {"water ", "flows ", "from ", "the ", "lake ", "to ", "turbines ", "below.\n"};
    std::mt19937 generator(seed);
    std::string text;
    while (text.size() < bytes) text += words[generator() % words.size()];
    return text;
}

}  // namespace penstock::testing
