#include "trainer/run/run_log.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace penstock::trainer {
namespace {

constexpr std::size_t piece_bytes = 1U << 20;

// Whether a line is a whole record of a step up to `committed`.
bool is_kept(std::string_view line, std::int64_t committed) {
    const auto object = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    if (!object.is_object()) return false;
    const auto step = object.find("step");
    if (step == object.end() || !step->is_number_integer()) return false;
    const auto number = step->get<std::int64_t>();
    return number >= 1 && number <= committed;
}

// Where the last kept line ends.
std::uint64_t snapshot_bytes_on_disk(const PlainFile& file, std::int64_t committed) {
    std::uint64_t kept = 0;
    std::uint64_t offset = 0;
    std::string pending;
    std::vector<std::byte> piece(piece_bytes);
    for (std::size_t got = 0; (got = file.read_at(offset, piece)) > 0; offset += got) {
        pending.append(reinterpret_cast<const char*>(piece.data()), got);
        std::size_t begin = 0;
        for (auto end = pending.find('\n'); end != std::string::npos;
             begin = end + 1, end = pending.find('\n', begin)) {
            if (!is_kept(std::string_view(pending).substr(begin, end - begin), committed)) return kept;
            kept += end + 1 - begin;
        }
        pending.erase(0, begin);
    }
    return kept;
}

}  // namespace

RunLog::RunLog(const std::string& path, std::int64_t committed) : file_(path, PlainFile::Mode::read_write_create) {
    end_bytes_ = snapshot_bytes_on_disk(file_, committed);
    file_.truncate(end_bytes_);
}

void RunLog::append(const StepRecord& record) {
    const std::string line = json_of(record) + "\n";
    file_.write_at(end_bytes_, std::as_bytes(std::span(line)));
    end_bytes_ += line.size();
}

std::string set_aside(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (const auto bytes = fs::file_size(path, error); error || bytes == 0) return {};
    const fs::path log(path);
    for (int number = 1;; ++number) {
        const fs::path free =
            log.parent_path() / fmt::format("{}.{}{}", log.stem().string(), number, log.extension().string());
        if (fs::exists(free)) continue;
        rename_durably(path, free.string());
        return free.string();
    }
}

}  // namespace penstock::trainer
