// The program `penstock`: reads the command line, builds console and signals, calls the verb, and turns its end into an
// exit code.
#include "aio/words/error.h"
#include "trainer/bench_program.h"
#include "trainer/ckpt/ckpt_command.h"
#include "trainer/cli/console.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/processes.h"
#include "trainer/cli/stop_signals.h"
#include "trainer/cli/verb_words.h"
#include "trainer/config/key_table.h"
#include "trainer/data/prepare.h"
#include "trainer/plan/plan_command.h"
#include "trainer/run/train.h"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::trainer {
namespace {

constexpr auto prepare_example =
    "Example:\n"
    "  penstock prepare --out text.tokens notes.txt /usr/share/doc\n";

constexpr auto train_example =
    "Run the same command again to resume after a stop, a kill or a power cut.\n"
    "Example:\n"
    "  penstock train trainer/demo.json --set memory.host_budget=200MiB --steps 100\n"
    "  penstock train my.json --set gradient_clipping=0.5 --change gradient_clipping\n";

struct CommandLine {
    PrepareRequest prepare;
    TrainRequest train;
    std::string steps;  // as typed: the key table judges it
    bool replace = false;
    bool json = false;
    bool keys_of_package = false;
    std::function<std::string(Console&)> plan;
    std::function<CkptResult(Console&)> ckpt;
};

// Standard output is for results alone: what cannot be written there is an error, not a loss.
void write_result(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        throw Error(ExitCode::storage, "cannot write the result to standard output");
    }
}

// An empty value is a variable of a script that was never set: it must not mean "not given".
std::string not_empty(const std::string& value) {
    return value.empty() ? "the value is empty; give one or leave the option out" : "";
}

void add_verbs(CLI::App& app, CommandLine& line) {
    app.require_subcommand(1);
    app.set_version_flag("--version", "penstock " PENSTOCK_VERSION);

    CLI::App* prepare = app.add_subcommand("prepare", "Turn text files into a token file, byte by byte");
    prepare->add_option("--out", line.prepare.out, "token file to make, FILE.tokens")->required()->check(not_empty);
    prepare
        ->add_option("--validation-share", line.prepare.validation_share,
                     "share of the tokens, from the end, that goes to FILE.validation.tokens")
        ->check(CLI::Range(0.0, 0.99));
    prepare->add_flag("--force", line.replace, "replace a token file that exists");
    prepare->add_option("PATH", line.prepare.paths, "text files; directories give their *.txt, *.md and *.rst")
        ->required();
    prepare->footer(prepare_example);

    CLI::App* train = app.add_subcommand("train", "Train a model, or resume its training");
    train->add_option("CONFIG", line.train.config_file, "configuration, JSON with comments")->required();
    train->add_flag("--json", line.json, "print one JSON object with the result on standard output");
    train->add_option("--set", line.train.overrides, "KEY=VALUE: set a key of the configuration; may be repeated")
        ->allow_extra_args(false);
    train->add_flag("--plan", line.train.plan,
                    "measure for some seconds first, say how long a step will take, and at the end how long it took");
    train->add_option("--steps", line.steps, "the same as --set run.steps=N");
    train
        ->add_option("--resume-from", line.train.resume_from,
                     "go on from a kept snapshot, by its name, step or path (`penstock ckpt ls`); what the run has "
                     "committed since is replaced. Given again, it goes on from the newest commit")
        ->check(not_empty);
    train->add_flag(
        "--go-back", line.train.go_back,
        "give up committed steps: go back to the snapshot of --resume-from again, or go on with a store that "
        "is older than the run's log");
    train
        ->add_option("--change", line.train.change,
                     "KEY: go on with another value of a key than the run was started with, though that changes its "
                     "result; may be repeated")
        ->allow_extra_args(false);
    train
        ->add_option("--trace", line.train.trace.path,
                     "file for a picture of some steps, as JSON for ui.perfetto.dev and chrome://tracing")
        ->check(not_empty);
    train
        ->add_option("--trace-steps", line.train.trace.steps,
                     "N or N..M: the steps of --trace; else the third to the fifth of this start")
        ->check(not_empty);
    train->footer(train_example);

    line.plan = add_plan_verb(app);
    line.ckpt = add_ckpt_verb(app);

    // For the help only: main() hands the verb over before the command line is parsed.
    app.add_subcommand("bench", "Measure this machine and Penstock on it (starts penstock-bench; see bench --help)");

    CLI::App* keys = app.add_subcommand("keys", "Print the reference of all configuration keys, as Markdown");
    keys->add_flag("--package", line.keys_of_package, "those that the Python package reads, DeepSpeed's among them");
    keys->footer("Example:\n  penstock keys | grep memory\n");
    app.footer(
        "Exit codes: 0 ok, 1 internal error, 2 usage or configuration, 3 does not fit, 4 storage error, 5 out of "
        "memory,\n"
        "6 loss, gradient or weight is not finite, 75 stopped by a signal after a committed step (run again to "
        "resume);\n"
        "a scratch run that is stopped ends by that signal.");
}

ExitCode run_train(CommandLine& line, Console& console, StopSignals& signals) {
    if (const std::string several = complaint_about_processes(std::getenv); !several.empty())
        throw Error(ExitCode::usage, several);
    if (!line.steps.empty()) line.train.overrides.push_back("run.steps=" + line.steps);
    const TrainOutcome outcome = train(line.train, console, signals);
    if (line.json) write_result(json_of(outcome.summary) + "\n");
    if (outcome.signal != 0) StopSignals::end_by(outcome.signal);
    return outcome.code;
}

ExitCode run_ckpt(const CommandLine& line, Console& console) {
    const CkptResult result = line.ckpt(console);
    console.settle();
    write_result(result.text);
    return result.code;
}

ExitCode run_verb(const CLI::App& app, CommandLine& line, Console& console, StopSignals& signals) {
    if (app.got_subcommand("train")) return run_train(line, console, signals);
    if (app.got_subcommand("plan")) {
        write_result(line.plan(console));
        return ExitCode::ok;
    }
    if (app.got_subcommand("ckpt")) return run_ckpt(line, console);
    if (app.got_subcommand("keys")) {
        write_result(line.keys_of_package ? package_reference() : reference_table());
        return ExitCode::ok;
    }
    line.prepare.existing = line.replace ? Existing::replace : Existing::refuse;
    prepare(line.prepare, console);
    return ExitCode::ok;
}

// A file that is opened later must not become standard output, and get the lines of the log into it. What was closed
// stays useless: it opens for the wrong direction.
void fill_standard_descriptors() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF)
            static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));  // takes the lowest: fd
    }
}

// Before anything of this program is set up: signals and streams are the other program's.
ExitCode run_bench(char** arguments) {
    try {
        become_bench_program(arguments);
    } catch (const Error& error) {
        std::fprintf(stderr, "penstock: error: %s\n", error.what());
        return error.code();
    }
}

}  // namespace
}  // namespace penstock::trainer

int main(int count, char** arguments) {
    using namespace penstock;
    using namespace penstock::trainer;
    fill_standard_descriptors();
    if (count > 1 && std::string_view(arguments[1]) == "bench") return static_cast<int>(run_bench(arguments));
    // A reader that goes away, or a limit on the length of files, must not end the training: failed writes are seen
    // where they happen.
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    CLI::App app("penstock trains models that are larger than memory.", "penstock");
    app.failure_message([](const CLI::App*, const CLI::Error& error) {
        return "penstock: error: " + std::string(error.what()) + "; --help says more\n";
    });
    CommandLine line;
    add_verbs(app, line);
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
        return static_cast<int>(run_verb(app, line, console, signals));
    } catch (...) {
        const Failure failure = current_failure();
        console.error(failure.message);
        return static_cast<int>(failure.code);
    }
}
