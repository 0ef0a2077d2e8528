#include "bench/bench_command.h"

#include "bench/harness/measure.h"
#include "trainer/absent_verb.h"
#include "trainer/cli/verb_words.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace penstock::bench {

ExitCode run_command(int count, char** arguments) {
    std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away must not keep us from tidying up
    CLI::App app("penstock-bench measures this machine and Penstock on it.", "penstock bench");
    app.failure_message([](const CLI::App*, const CLI::Error& error) {
        return "penstock bench: error: " + std::string(error.what()) + "; --help says more\n";
    });
    app.require_subcommand(1);
    app.fallthrough();  // --json may stand behind the verb
    bool json = false;
    app.add_flag("--json", json, "print one JSON object on standard output");
    const std::vector<std::pair<const char*, BenchRun>> verbs = {
        {"io", add_io_verb(app)},     {"transfer", add_transfer_verb(app)}, {"optimizer", add_optimizer_verb(app)},
        {"swap", add_swap_verb(app)}, {"step", add_step_verb(app)},         {"ranks", add_ranks_verb(app)}};
    app.footer(trainer::lines_of_absent_verbs(app));
    std::vector<std::string> words = trainer::help_as_option({arguments + 1, arguments + std::max(count, 1)});
    if (const std::string complaint = trainer::complaint_about_verb(app, words); !complaint.empty()) {
        std::cerr << "penstock bench: error: " << complaint << '\n';
        return ExitCode::usage;
    }
    try {
        std::reverse(words.begin(), words.end());  // as CLI11 wants them
        app.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? ExitCode::ok : ExitCode::usage;
    }
    ExitCode code = ExitCode::ok;
    for (const auto& [name, run] : verbs) {
        if (!app.got_subcommand(name)) continue;
        code = measure(name, run, json ? ResultFormat::json : ResultFormat::table, std::cout, std::cerr);
    }
    return code;
}

}  // namespace penstock::bench
