// The trainer's own plain files (tokens, log, summary): an open file whose every result is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace penstock::trainer {

// Move-only owner of a file descriptor, of a regular file: nothing waits for the other end of a pipe. Everything throws
// Error naming the path and the system's reason: storage, except that a file that cannot be opened is the user's
// (usage).
class PlainFile {
   public:
    enum class Mode : std::uint8_t {
        read,               // must exist
        read_ours,          // the same of one that we write: in the place of what is no file a new one is made
        replace,            // created or emptied
        read_write_create,  // created when missing, contents kept
        own,                // the same of a name that is ours alone: a link there is not followed
    };

    PlainFile() noexcept = default;
    PlainFile(const std::string& path, Mode mode);
    ~PlainFile();
    PlainFile(PlainFile&& other) noexcept;
    PlainFile& operator=(PlainFile&& other) noexcept;

    const std::string& path() const noexcept { return path_; }
    std::uint64_t bytes() const;
    // Reads at most out.size() bytes; fewer only at the end of the file.
    std::size_t read_at(std::uint64_t offset_bytes, std::span<std::byte> out) const;
    void write_at(std::uint64_t offset_bytes, std::span<const std::byte> bytes);
    void truncate(std::uint64_t bytes);
    void sync();

    // Locks it against other processes until it is closed or they are all gone; false: another has it. A file system
    // that knows no locks refuses nobody.
    bool try_lock();
    bool has_its_name() const noexcept;  // nobody has renamed, removed or replaced it

   private:
    [[noreturn]] void fail(const char* operation) const;
    int fd_ = -1;
    std::string path_;
};

// Renames and makes the new name durable. Throws Error (storage).
void rename_durably(const std::string& from, const std::string& to);

}  // namespace penstock::trainer
