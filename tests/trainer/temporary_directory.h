// A directory below the current one, removed with its contents at the end.
#pragma once

#include <string>

namespace penstock::testing {

class TemporaryDirectory {
   public:
    TemporaryDirectory();
    ~TemporaryDirectory();
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    const std::string& path() const noexcept { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

   private:
    std::string path_;
};

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& text);
// About `bytes` of lower-case words that a model can learn from; the same for the same seed.
std::string toy_text(std::size_t bytes, unsigned seed);

}  // namespace penstock::testing
