// The program `penstock`: reads the command line, builds console and signals, calls the verb, and turns its end into an
// exit code.
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "trainer/absent_verb.h"
#include "trainer/bench_program.h"
#include "trainer/cli/console.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/stop_signals.h"
#include "trainer/cli/verb_words.h"
#include "trainer/verbs.h"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::trainer {
namespace {

// A file that is opened later must not become standard output, and get the lines of the log into it. What was closed
// stays useless: it opens for the wrong direction.
void fill_standard_descriptors() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF)
            static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));  // takes the lowest: fd
    }
}

constexpr auto exit_codes =
    "Exit codes: 0 ok, 1 internal error, 2 usage or configuration, 3 does not fit, 4 storage error, 5 out of "
    "memory,\n"
    "6 loss, gradient or weight is not finite, 7 another process of the run has ended, 75 stopped by a signal after a "
    "committed\n"
    "step (run again to resume);\n"
    "a scratch run that is stopped ends by that signal.";

ExitCode run_parsed(const std::vector<Verb>& verbs, Console& console, StopSignals& signals) {
    const auto parsed = std::ranges::find_if(verbs, [](const Verb& verb) { return verb.words->parsed(); });
    PENSTOCK_CHECK(parsed != verbs.end(), "no verb was given");
    return parsed->run(console, signals);
}

}  // namespace
}  // namespace penstock::trainer

int main(int count, char** arguments) {
    using namespace penstock;
    using namespace penstock::trainer;
    fill_standard_descriptors();
    if (count > 1 && std::string_view(arguments[1]) == "bench") return static_cast<int>(run_bench(count, arguments));
    // A reader that goes away, or a limit on the length of files, must not end the training: failed writes are seen
    // where they happen.
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    CLI::App app("penstock trains models that are larger than memory.", "penstock");
    app.failure_message([](const CLI::App*, const CLI::Error& error) {
        return "penstock: error: " + std::string(error.what()) + "; --help says more\n";
    });
    app.require_subcommand(1);
    app.set_version_flag("--version", "penstock " PENSTOCK_VERSION);
    const std::vector<Verb> verbs = add_verbs(app);
    app.footer(exit_codes + lines_of_absent_verbs(app));  // last: verbs would inherit it
    std::vector<std::string> words = help_as_option({arguments + 1, arguments + std::max(count, 1)});
    if (const std::string complaint = complaint_about_verb(app, words); !complaint.empty()) {
        std::fprintf(stderr, "penstock: error: %s\n", complaint.c_str());
        return static_cast<int>(ExitCode::usage);
    }
    try {
        std::reverse(words.begin(), words.end());  // as CLI11 wants them
        app.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
        return static_cast<int>(app.exit(error) == 0 ? ExitCode::ok : ExitCode::usage);
    }
    spdlog::logger logger("penstock", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger.set_pattern("penstock: %v");
    Console console(logger, ::isatty(STDERR_FILENO) == 1 ? Console::Kind::terminal : Console::Kind::file);
    try {
        StopSignals signals;
        return static_cast<int>(run_parsed(verbs, console, signals));
    } catch (...) {
        const Failure failure = current_failure();
        console.error(failure.message);
        return static_cast<int>(failure.code);
    }
}
