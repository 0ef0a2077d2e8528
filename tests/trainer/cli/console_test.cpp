#include "trainer/cli/console.h"

#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <pty.h>
#include <array>
#include <chrono>
#include <sstream>
#include <thread>

namespace penstock::trainer {
namespace {

// Standard error is a terminal of so many columns while it lives.
class Terminal {
   public:
    explicit Terminal(unsigned short columns) : before_(::dup(STDERR_FILENO)) {
        winsize size{};
        size.ws_col = columns;
        int slave = -1;
        if (::openpty(&master_, &slave, nullptr, nullptr, &size) != 0) return;
        ::dup2(slave, STDERR_FILENO);
        ::close(slave);
    }
    ~Terminal() {
        restore();
        ::close(master_);
    }
    bool made() const { return master_ >= 0; }
    // All that was written to it, up to its end: the kernel passes it on by and by.
    std::string shown() {
        restore();
        std::string text;
        std::array<char, 256> piece{};
        ssize_t got = 0;
        while ((got = ::read(master_, piece.data(), piece.size())) > 0)
            text.append(piece.data(), static_cast<std::size_t>(got));
        return text;
    }

   private:
    void restore() {
        if (before_ < 0) return;
        ::dup2(before_, STDERR_FILENO);
        ::close(before_);
        before_ = -1;
    }
    int before_;
    int master_ = -1;
};

TEST(Console, ALiveLineIsCutBetweenWords) {
    std::ostringstream text;
    spdlog::logger logger("test", std::make_shared<spdlog::sinks::ostream_sink_st>(text));
    Console console(logger, Console::Kind::terminal);
    Terminal terminal(20);
    if (!terminal.made()) GTEST_SKIP() << "no terminals here";
    EXPECT_EQ(console.columns(), 19U);
    console.live("12345678901234567890");
    console.live("loss 3.25  committed 12345");
    console.live("loss 3.250  fourteen");
    EXPECT_EQ(terminal.shown(), "\r\x1b[K1234567890123456789\r\x1b[Kloss 3.25\r\x1b[Kloss 3.250");
}

TEST(Console, AClockMovesTheLineWithinALongCall) {
    std::ostringstream text;
    spdlog::logger logger("test", std::make_shared<spdlog::sinks::ostream_sink_st>(text));
    Console console(logger, Console::Kind::terminal);
    Terminal terminal(20);
    if (!terminal.made()) GTEST_SKIP() << "no terminals here";
    {
        const LiveClock clock(console, "1/200 loss 3.25");
        std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    }
    EXPECT_EQ(terminal.shown().substr(0, 20), "\r\x1b[K1/200 loss  +1 s");
}

TEST(Console, AClockSaysNothingToAFile) {
    std::ostringstream text;
    spdlog::logger logger("test", std::make_shared<spdlog::sinks::ostream_sink_st>(text));
    Console console(logger, Console::Kind::file);
    const auto start = std::chrono::steady_clock::now();
    { const LiveClock clock(console, "1/200"); }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
    EXPECT_EQ(text.str(), "");
}

}  // namespace
}  // namespace penstock::trainer
