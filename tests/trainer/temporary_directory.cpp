#include "tests/trainer/temporary_directory.h"

#include <stdlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>

namespace penstock::testing {

TemporaryDirectory::TemporaryDirectory() : path_("trainer_test.XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a temporary directory here");
    path_ = std::filesystem::absolute(path_).string();
}

TemporaryDirectory::~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::string toy_text(std::size_t bytes, unsigned seed) {
    constexpr std::array words = {"water ", "flows ", "from ", "the ", "lake ", "to ", "turbines ", "below.\n"};
    std::mt19937 generator(seed);
    std::string text;
    while (text.size() < bytes) text += words[generator() % words.size()];
    return text;
}

}  // namespace penstock::testing
