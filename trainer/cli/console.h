// The program's voice: lines of the log on standard error, and on a terminal one line that is redrawn in place.
#pragma once

#include <spdlog/fwd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace penstock::trainer {

// One thread. The logger outlives it.
class Console {
   public:
    enum class Kind : std::uint8_t { terminal, file };
    // What of it is for people.
    enum class Voice : std::uint8_t {
        all,
        errors,  // another process of the run says how it goes
        none,    // and why it has ended
    };

    Console(spdlog::logger& logger, Kind kind) : logger_(logger), kind_(kind) {}
    ~Console() { settle(); }
    Console(const Console&) = delete;
    Console& operator=(const Console&) = delete;

    bool is_terminal() const noexcept { return kind_ == Kind::terminal && voice_ == Voice::all; }
    void speak(Voice voice) noexcept { voice_ = voice; }
    // All lines go there, too, from now on. Throws Error (usage) where it cannot be written.
    void write_to(const std::string& file);

    void info(const std::string& line);
    void warn(const std::string& line);
    void error(const std::string& line);

    std::size_t columns() const;  // that a live line has room for
    // Redraws the live line, cut between words to the terminal's width; nothing where there is no terminal.
    void live(const std::string& line);
    // The same, at most ten times a second: for progress that is reported per piece.
    void live_now_and_then(const std::string& line);
    // Leaves the live line standing and goes to the next one.
    void settle();

   private:
    void clear();

    enum class Line : std::uint8_t { info, warning, error };
    void put(Line kind, const std::string& line);

    spdlog::logger& logger_;
    Kind kind_;
    Voice voice_ = Voice::all;
    std::shared_ptr<spdlog::logger> file_;  // null: there is none
    bool drawn_ = false;
    std::chrono::steady_clock::time_point last_{};
};

// For layers that say a line now and then (store::WaitNotice). The console outlives it.
std::function<void(const std::string& line)> told_to(Console& console);

// While it lives, on a terminal, the live line is its text and the seconds since: work that is one long call moves,
// too. The console is its own until then: nobody else writes to it.
class LiveClock {
   public:
    LiveClock(Console& console, std::string text);

   private:
    std::jthread thread_;
};

}  // namespace penstock::trainer
