#include "trainer/cli/console.h"

#include "aio/words/error.h"
#include "swap/format/utf8.h"
#include "trainer/cli/step_record.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <utility>

namespace penstock::trainer {
namespace {

std::size_t terminal_columns() {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Cuts between characters, and before a word that would lose its end: half a number is another number.
std::string cut_to_columns(const std::string& line, std::size_t columns) {
    std::size_t seen = 0;
    std::size_t end = 0;
    for (; end < line.size(); ++end) {
        if (!store::continues_character(line[end]) && ++seen > columns) break;
    }
    if (end == line.size()) return line;
    const auto blank = line.find_last_of(' ', end);
    const auto last = blank == std::string::npos ? blank : line.find_last_not_of(' ', blank);
    return line.substr(0, last == std::string::npos ? end : last + 1);
}

}  // namespace

void Console::info(const std::string& line) {
    clear();
    put(Line::info, line);
}

void Console::warn(const std::string& line) {
    clear();
    put(Line::warning, "warning: " + line);
}

void Console::error(const std::string& line) {
    settle();
    put(Line::error, "error: " + line);
}

void Console::put(Line kind, const std::string& line) {
    if (voice_ == Voice::all || (voice_ == Voice::errors && kind == Line::error)) logger_.info("{}", line);
    if (file_) file_->info("{}", line);
}

void Console::write_to(const std::string& file) {
    try {
        file_ = std::make_shared<spdlog::logger>("file", std::make_shared<spdlog::sinks::basic_file_sink_st>(file));
    } catch (const spdlog::spdlog_ex& error) {
        throw Error(ExitCode::usage, fmt::format("{} cannot be written: {}; name another folder", file, error.what()));
    }
    file_->set_pattern("%Y-%m-%dT%H:%M:%S %v");
    file_->flush_on(spdlog::level::info);
}

// One column stays free: a full line would wrap on some terminals, and \r would then return to the wrong one.
std::size_t Console::columns() const {
    return terminal_columns() - 1;
}

void Console::live(const std::string& line) {
    if (!is_terminal()) return;
    std::fprintf(stderr, "\r\x1b[K%s", cut_to_columns(line, columns()).c_str());
    std::fflush(stderr);
    drawn_ = true;
}

void Console::live_now_and_then(const std::string& line) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    live(line);
}

void Console::settle() {
    if (drawn_) std::fputc('\n', stderr);
    drawn_ = false;
}

void Console::clear() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
    drawn_ = false;
}

std::function<void(const std::string& line)> told_to(Console& console) {
    return [&console](const std::string& line) { console.info(line); };
}

LiveClock::LiveClock(Console& console, std::string text) {
    if (!console.is_terminal()) return;
    thread_ = std::jthread([&console, text = std::move(text)](const std::stop_token& stop) {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any ended;
        for (int seconds = 1;; ++seconds) {
            if (ended.wait_for(lock, stop, std::chrono::seconds(1), [&] { return stop.stop_requested(); })) return;
            const std::string since = "  +" + duration_text(seconds);
            const std::size_t columns = console.columns();
            console.live(cut_to_columns(text, columns - std::min(columns, since.size())) + since);
        }
    });
}

}  // namespace penstock::trainer
