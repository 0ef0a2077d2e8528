// A file of tokens. Little-endian:
//
//   offset  bytes  what
//   0       8      magic "PENSTOK\n"
//   8       4      version, 1
//   12      4      bytes of one token: 1 (2 and 4 are reserved for larger vocabularies)
//   16      8      vocabulary: every token is below it
//   24      8      count of tokens
//   32      16     xxh3-128 of the tokens' bytes, low half first
//   48      16     zero
//   64             the tokens, nothing after them
//
// Byte-level files have vocabulary 256; byte 0 stands after each document and nowhere else.
#pragma once

#include "trainer/data/plain_file.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace penstock::trainer {

inline constexpr std::uint64_t token_header_bytes = 64;
inline constexpr std::byte document_end{0};

struct TokenFileInfo {
    std::uint64_t vocabulary = 256;
    std::uint64_t count = 0;
    std::string hash;  // 32 hexadecimal digits: names the contents wherever the file lies
};

// An open token file whose contents were checked against its hash. const members may be called from any thread.
class TokenFile {
   public:
    // Throws Error (usage) naming the path and what is wrong: missing, not a token file, newer version, shorter or
    // longer than its header says, damaged.
    explicit TokenFile(const std::string& path);

    // Whether it begins as a token file does, whole or not, or is empty. Throws Error (usage, storage).
    static bool may_be_replaced(const std::string& path);

    const TokenFileInfo& info() const noexcept { return info_; }
    const std::string& path() const noexcept { return file_.path(); }

    // Reads tokens [first, first + out.size()). REQUIRES: within count. Throws Error (storage).
    void read(std::uint64_t first, std::span<std::int64_t> out) const;

   private:
    void check_body(const std::string& hash) const;
    PlainFile file_;
    TokenFileInfo info_;
};

std::string unfinished_path(const std::string& path);  // "text.tokens.penstock-unfinished"

// Writes unfinished_path(PATH) and gives it its name when it is whole and durable; removes it when it never becomes so.
class TokenWriter {
   public:
    // Throws Error (usage) when the file cannot be created, when another process writes it, or when its unfinished name
    // is taken by a file that is not what a killed writer leaves: such a file is never touched.
    explicit TokenWriter(const std::string& path);
    ~TokenWriter();
    TokenWriter(const TokenWriter&) = delete;
    TokenWriter& operator=(const TokenWriter&) = delete;

    void append(std::span<const std::byte> tokens);  // byte-level; throws Error (storage)
    TokenFileInfo finish();                          // then the file has its name

   private:
    struct Hash;
    void take_temporary();
    std::string path_;
    std::string temporary_;
    PlainFile file_;
    std::unique_ptr<Hash> hash_;
    std::uint64_t count_ = 0;
    bool finished_ = false;
};

}  // namespace penstock::trainer
