#include "tests/zero_infinity/ranks/watch/file_board.h"

#include "aio/words/error.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace penstock::testing {

std::filesystem::path FileBoard::place_of(std::string key) const {
    std::ranges::replace(key, '/', '-');
    return directory_ / key;
}

// Whole, under a name that nobody looks for. One thread of a process puts.
std::filesystem::path FileBoard::written(const std::string& value) const {
    std::filesystem::path path = directory_ / ("of-" + std::to_string(::getpid()));
    if (!(std::ofstream(path, std::ios::binary) << value).flush())
        throw Error(ExitCode::peer_lost, "the board is gone");
    return path;
}

void FileBoard::put(const std::string& key, const std::string& value) {
    std::filesystem::rename(written(value), place_of(key));
}

std::string FileBoard::put_first(const std::string& key, const std::string& value) {
    std::error_code taken;
    const std::filesystem::path own = written(value);
    std::filesystem::create_hard_link(own, place_of(key), taken);
    std::filesystem::remove(own);  // or the next text would be written into what stands there
    return get(key).value();
}

std::optional<std::string> FileBoard::get(const std::string& key) {
    std::ifstream file(place_of(key), std::ios::binary);
    if (!file) return {};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

}  // namespace penstock::testing
