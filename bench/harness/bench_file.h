// The directory that a measurement works in, and its temporary file or folder there.
#pragma once

#include "aio/file.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::bench {

// Throws Error: usage (no directory, not writable), does_not_fit (less free space than `needed_bytes` and a little more
// for everybody else). Returns lines to note: a file system in memory, what a killed run left.
std::vector<std::string> check_bench_directory(const std::string& directory, std::uint64_t needed_bytes);
std::uint64_t free_space_bytes(const std::string& directory);

// "ext4 on /dev/vda", as far as it can be told.
std::string file_system_of(const std::string& directory);

// DIRECTORY/penstock-bench-PID-WHAT.tmp with all its space reserved, removed when this ends. Direct where the file
// system can.
class BenchFile {
   public:
    BenchFile(const std::string& directory, const std::string& what, std::uint64_t bytes);
    BenchFile(const BenchFile&) = delete;
    BenchFile& operator=(const BenchFile&) = delete;

    const aio::File& file() const noexcept { return file_; }
    const std::string& path() const noexcept { return made_.path; }
    std::uint64_t bytes() const noexcept { return bytes_; }

   private:
    // A file that was made under this name and is removed with it, also when what stands below cannot be constructed.
    struct Made {
        explicit Made(std::string its_path);
        ~Made();
        Made(const Made&) = delete;
        Made& operator=(const Made&) = delete;
        std::string path;
    };

    Made made_;
    std::uint64_t bytes_;
    aio::File file_;
};

// DIRECTORY/penstock-bench-PID-WHAT.tmp, made when this begins and removed with all that is in it when this ends.
class BenchFolder {
   public:
    BenchFolder(const std::string& directory, const std::string& what);  // throws Error (usage, storage)
    ~BenchFolder();
    BenchFolder(const BenchFolder&) = delete;
    BenchFolder& operator=(const BenchFolder&) = delete;
    const std::string& path() const noexcept { return path_; }

   private:
    std::string path_;
};

}  // namespace penstock::bench
