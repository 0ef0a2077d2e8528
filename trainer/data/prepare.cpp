#include "trainer/data/prepare.h"

#include "aio/words/error.h"
#include "trainer/cli/console.h"
#include "trainer/cli/progress_line.h"
#include "trainer/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <system_error>

namespace penstock::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_bytes = 1U << 20;

struct Document {
    std::string path;
    std::uint64_t bytes = 0;
};

[[noreturn]] void refuse(const std::string& message) {
    throw Error(ExitCode::usage, message);
}

bool is_text_name(const fs::path& path) {
    constexpr std::array names = {".txt", ".md", ".rst"};
    return std::find(names.begin(), names.end(), path.extension()) != names.end();
}

std::vector<std::string> text_files_below(const std::string& directory) {
    std::vector<std::string> found;
    std::error_code error;
    fs::recursive_directory_iterator entry(directory, error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
        std::error_code type_error;
        if (entry->is_regular_file(type_error) && is_text_name(entry->path())) found.push_back(entry->path().string());
    }
    if (error) refuse(fmt::format("cannot list {}: {}", directory, error.message()));
    if (found.empty()) refuse(fmt::format("{} holds no *.txt, *.md or *.rst file", directory));
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<Document> find_documents(const std::vector<std::string>& paths) {
    std::vector<Document> documents;
    for (const std::string& path : paths) {
        std::error_code error;
        const fs::file_status status = fs::status(path, error);
        if (!fs::exists(status)) refuse(fmt::format("{} does not exist", path));
        if (!fs::is_directory(status) && !fs::is_regular_file(status))
            refuse(fmt::format("{} is a pipe or a device; give text in a file", path));
        const std::vector<std::string> files = fs::is_directory(status) ? text_files_below(path) : std::vector{path};
        for (const std::string& file : files) {
            documents.push_back({file, PlainFile(file, PlainFile::Mode::read).bytes()});
        }
    }
    return documents;
}

std::uint64_t token_count(const std::vector<Document>& documents) {
    std::uint64_t count = 0;
    for (const Document& document : documents) count += document.bytes == 0 ? 0 : document.bytes + 1;
    return count;
}

// Where the tokens go: the first `training_count` to one file, the rest to the other.
class Splitter {
   public:
    Splitter(const std::string& out, std::uint64_t training_count, std::uint64_t count)
        : training_(std::make_unique<TokenWriter>(out)), training_left_(training_count) {
        if (count > training_count) validation_ = std::make_unique<TokenWriter>(validation_path(out));
    }

    void append(std::span<const std::byte> tokens) {
        const std::size_t first = std::min<std::uint64_t>(tokens.size(), training_left_);
        if (first > 0) training_->append(tokens.first(first));
        if (first < tokens.size() && validation_) validation_->append(tokens.subspan(first));
        training_left_ -= first;
    }

    TokenFileInfo finish() {
        if (validation_) validation_->finish();
        return training_->finish();
    }

   private:
    std::unique_ptr<TokenWriter> training_;
    std::unique_ptr<TokenWriter> validation_;
    std::uint64_t training_left_;
};

void check_is_text(std::span<const std::byte> piece, const std::string& path, std::uint64_t offset) {
    const auto zero = std::find(piece.begin(), piece.end(), document_end);
    if (zero == piece.end()) return;
    refuse(fmt::format("{} is not text: byte 0 at offset {}; leave the file out", path,
                       offset + static_cast<std::uint64_t>(zero - piece.begin())));
}

// Copies exactly `document.bytes`, so that the count stays what was planned.
template <typename Progress>
void copy_document(const Document& document, Splitter& out, std::vector<std::byte>& piece, const Progress& progress) {
    const PlainFile file(document.path, PlainFile::Mode::read);
    for (std::uint64_t offset = 0; offset < document.bytes;) {
        const std::size_t wanted = std::min<std::uint64_t>(piece.size(), document.bytes - offset);
        const auto part = std::span(piece).first(wanted);
        if (file.read_at(offset, part) != wanted) refuse(document.path + " became shorter while it was read");
        check_is_text(part, document.path, offset);
        out.append(part);
        offset += wanted;
        progress(wanted);
    }
    out.append(std::span(&document_end, 1));
}

void check_out(const PrepareRequest& request, const std::string& path) {
    const fs::path parent = fs::path(path).parent_path();
    if (!parent.empty() && !fs::is_directory(parent))
        refuse(fmt::format("the directory of --out {} does not exist", path));
    if (fs::is_directory(path)) refuse(fmt::format("--out {} is a directory", path));
    if (fs::exists(path) && !fs::is_regular_file(path))
        refuse(fmt::format("--out {} is a pipe or a device; give the name of a file", path));
    if (request.existing == Existing::refuse && fs::exists(path)) {
        refuse(fmt::format("{} exists already; --force replaces it", path));
    }
}

// --force is meant for token files, and for no other file of the user's.
void refuse_other_file(const std::string& path) {
    if (fs::exists(path) && !TokenFile::may_be_replaced(path))
        refuse(
            fmt::format("--out {} is no token file, and --force replaces nothing else; move it away or give another "
                        "--out",
                        path));
}

// Least of all for the text itself.
void refuse_input(const std::string& written, const std::vector<Document>& documents) {
    for (const std::string& path : {written, unfinished_path(written)}) {
        for (const Document& document : documents) {
            std::error_code missing;  // then it is no input either
            if (fs::equivalent(path, document.path, missing) && !missing)
                refuse(
                    fmt::format("{} is one of the inputs and would be replaced by tokens; give another --out", path));
        }
    }
}

}  // namespace

std::string validation_path(const std::string& out) {
    const fs::path path(out);
    return (path.parent_path() / (path.stem().string() + ".validation" + path.extension().string())).string();
}

void prepare(const PrepareRequest& request, Console& console) {
    check_out(request, request.out);
    if (request.validation_share > 0) check_out(request, validation_path(request.out));
    const std::vector<Document> documents = find_documents(request.paths);
    std::vector<std::string> written{request.out};
    if (request.validation_share > 0) written.push_back(validation_path(request.out));
    for (const std::string& path : written) {
        refuse_input(path, documents);
        refuse_other_file(path);
    }
    const std::uint64_t count = token_count(documents);
    if (count == 0) refuse("the given files are all empty");
    const auto validation = static_cast<std::uint64_t>(request.validation_share * static_cast<double>(count));

    Splitter out(request.out, count - validation, count);
    std::vector<std::byte> piece(piece_bytes);
    ProgressLine line(console, "prepare");
    std::uint64_t done = 0;
    for (const Document& document : documents) {
        if (document.bytes == 0) {
            console.warn(document.path + " is empty");
            continue;
        }
        done += 1;  // its end
        copy_document(document, out, piece, [&](std::uint64_t bytes) {
            done += bytes;
            line.show(done, count);
        });
    }
    const TokenFileInfo info = out.finish();
    console.info(
        fmt::format("{}: {} tokens of {} documents, hash {}", request.out, info.count, documents.size(), info.hash));
    if (validation > 0) console.info(fmt::format("{}: {} tokens", validation_path(request.out), validation));
}

}  // namespace penstock::trainer
