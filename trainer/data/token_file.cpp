#include "trainer/data/token_file.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

namespace penstock::trainer {
namespace {

constexpr std::string_view magic = "PENSTOK\n";
constexpr std::string_view unfinished_magic = "PENSTOK?";  // until the header is written
constexpr auto unfinished_suffix = ".penstock-unfinished";
constexpr std::uint32_t version = 1;
constexpr std::size_t piece_bytes = 1U << 20;

static_assert(std::endian::native == std::endian::little, "the header is copied as it lies in memory");

struct Header {
    std::array<char, 8> magic;
    std::uint32_t version;
    std::uint32_t token_bytes;
    std::uint64_t vocabulary;
    std::uint64_t count;
    std::uint64_t hash_low;
    std::uint64_t hash_high;
    std::array<std::byte, 16> zero;
};
static_assert(sizeof(Header) == token_header_bytes);

std::string hash_text(std::uint64_t low, std::uint64_t high) {
    return fmt::format("{:016x}{:016x}", high, low);
}

class HashState {
   public:
    HashState() : state_(XXH3_createState()) {
        if (state_ == nullptr) throw std::bad_alloc();
        XXH3_128bits_reset(state_);
    }
    ~HashState() { XXH3_freeState(state_); }
    HashState(const HashState&) = delete;
    HashState& operator=(const HashState&) = delete;

    void update(std::span<const std::byte> bytes) { XXH3_128bits_update(state_, bytes.data(), bytes.size()); }
    XXH128_hash_t digest() const { return XXH3_128bits_digest(state_); }

   private:
    XXH3_state_t* state_;
};

[[noreturn]] void refuse(const std::string& path, const std::string& problem) {
    throw Error(ExitCode::usage, fmt::format("{} {}; make it again with `penstock prepare`", path, problem));
}

}  // namespace

TokenFile::TokenFile(const std::string& path) : file_(path, PlainFile::Mode::read) {
    Header header{};
    const std::uint64_t bytes = file_.bytes();
    const std::size_t got = file_.read_at(0, std::as_writable_bytes(std::span(&header, 1)));
    if (got < sizeof(header) || std::string_view(header.magic.data(), header.magic.size()) != magic) {
        refuse(path, "is not a token file (its first bytes are not PENSTOK)");
    }
    if (header.version != version)
        refuse(path, fmt::format("has format version {}; this program reads {}", header.version, version));
    if (header.token_bytes != 1)
        refuse(path, fmt::format("has tokens of {} bytes; this program reads 1", header.token_bytes));
    if (header.count != bytes - token_header_bytes) {
        refuse(path,
               fmt::format("is {} bytes long but its header says {} tokens after {} bytes: it was cut or added to",
                           bytes, header.count, token_header_bytes));
    }
    if (header.vocabulary != 256)
        refuse(path, fmt::format("has vocabulary {}; tokens of 1 byte have 256", header.vocabulary));
    info_ = {
        .vocabulary = header.vocabulary, .count = header.count, .hash = hash_text(header.hash_low, header.hash_high)};
    check_body(info_.hash);
}

bool TokenFile::may_be_replaced(const std::string& path) {
    std::array<char, magic.size()> found{};
    const std::size_t got = PlainFile(path, PlainFile::Mode::read).read_at(0, std::as_writable_bytes(std::span(found)));
    return std::string_view(found.data(), got) == magic.substr(0, got);
}

void TokenFile::check_body(const std::string& hash) const {
    HashState state;
    std::vector<std::byte> piece(piece_bytes);
    std::uint64_t offset = token_header_bytes;
    for (std::size_t got = 0; (got = file_.read_at(offset, piece)) > 0; offset += got) {
        state.update(std::span(piece).first(got));
    }
    const XXH128_hash_t found = state.digest();
    if (hash_text(found.low64, found.high64) != hash)
        refuse(file_.path(), "is damaged: its tokens do not match the hash in its header");
}

void TokenFile::read(std::uint64_t first, std::span<std::int64_t> out) const {
    PENSTOCK_CHECK(first <= info_.count && out.size() <= info_.count - first, "tokens {} + {} of {}", first, out.size(),
                   info_.count);
    // The bytes are read into the upper end of `out` and widened from below: place i lies below byte i + 1.
    const auto bytes = std::as_writable_bytes(out).last(out.size());
    if (file_.read_at(token_header_bytes + first, bytes) != bytes.size()) {
        throw Error(ExitCode::storage, file_.path() + " became shorter while it was read");
    }
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::to_integer<std::int64_t>(bytes[i]);
}

struct TokenWriter::Hash : HashState {};

std::string unfinished_path(const std::string& path) {
    return path + unfinished_suffix;
}

TokenWriter::TokenWriter(const std::string& path)
    : path_(path),
      temporary_(unfinished_path(path)),
      file_(temporary_, PlainFile::Mode::own),
      hash_(std::make_unique<Hash>()) {
    take_temporary();
}

// What a process that died has left there is written over; anything else of that name is somebody's.
void TokenWriter::take_temporary() {
    if (!file_.try_lock() || !file_.has_its_name())
        throw Error(ExitCode::usage, fmt::format("{} is being written by another process; wait for its end or write "
                                                 "to another name",
                                                 temporary_));
    std::array<char, unfinished_magic.size()> found{};
    const std::size_t got = file_.read_at(0, std::as_writable_bytes(std::span(found)));
    if (got != 0 && std::string_view(found.data(), got) != unfinished_magic)
        throw Error(ExitCode::usage, fmt::format("{} is in the way: it is not what an unfinished `penstock prepare` "
                                                 "leaves; move it away or write to another name",
                                                 temporary_));
    file_.truncate(0);
    file_.write_at(0, std::as_bytes(std::span(unfinished_magic)));
}

TokenWriter::~TokenWriter() {
    if (!finished_) ::unlink(temporary_.c_str());
}

void TokenWriter::append(std::span<const std::byte> tokens) {
    file_.write_at(token_header_bytes + count_, tokens);
    hash_->update(tokens);
    count_ += tokens.size();
}

TokenFileInfo TokenWriter::finish() {
    const XXH128_hash_t hash = hash_->digest();
    Header header{};
    std::memcpy(header.magic.data(), magic.data(), magic.size());
    header.version = version;
    header.token_bytes = 1;
    header.vocabulary = 256;
    header.count = count_;
    header.hash_low = hash.low64;
    header.hash_high = hash.high64;
    file_.write_at(0, std::as_bytes(std::span(&header, 1)));
    file_.sync();
    rename_durably(temporary_, path_);
    finished_ = true;
    return {.vocabulary = header.vocabulary, .count = count_, .hash = hash_text(hash.low64, hash.high64)};
}

}  // namespace penstock::trainer
