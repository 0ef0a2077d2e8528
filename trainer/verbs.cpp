#include "trainer/verbs.h"

#include "trainer/bench_program.h"
#include "trainer/ckpt/ckpt_command.h"
#include "trainer/cli/console.h"
#include "trainer/cli/verb_words.h"
#include "trainer/config/key_table.h"
#include "trainer/data/prepare.h"
#include "trainer/result.h"

#include <CLI/CLI.hpp>

#include <memory>

namespace penstock::trainer {
namespace {

constexpr auto prepare_example =
    "Example:\n"
    "  penstock prepare --out text.tokens notes.txt /usr/share/doc\n";

Verb add_prepare(CLI::App& app) {
    struct Options {
        PrepareRequest request;
        bool replace = false;
    };
    const auto options = std::make_shared<Options>();
    PrepareRequest& request = options->request;
    CLI::App* verb = app.add_subcommand("prepare", "Turn text files into a token file, byte by byte");
    verb->add_option("--out", request.out, "token file to make, FILE.tokens")->required()->check(not_empty);
    verb->add_option("--validation-share", request.validation_share,
                     "share of the tokens, from the end, that goes to FILE.validation.tokens")
        ->check(CLI::Range(0.0, 0.99));
    verb->add_flag("--force", options->replace, "replace a token file that exists");
    verb->add_option("PATH", request.paths, "text files; directories give their *.txt, *.md and *.rst")->required();
    verb->footer(prepare_example);
    return {verb, [options](Console& console, StopSignals&) {
                options->request.existing = options->replace ? Existing::replace : Existing::refuse;
                prepare(options->request, console);
                return ExitCode::ok;
            }};
}

Verb add_ckpt(CLI::App& app) {
    const std::function<CkptResult(Console&)> run = add_ckpt_verb(app);
    return {app.get_subcommand("ckpt"), [run](Console& console, StopSignals&) {
                const CkptResult result = run(console);
                console.settle();
                write_result(result.text);
                return result.code;
            }};
}

// For the help only: main() hands it over before the command line is parsed.
Verb add_bench(CLI::App& app) {
    return {app.add_subcommand("bench", bench_description()), {}};
}

Verb add_keys(CLI::App& app) {
    const auto of_package = std::make_shared<bool>(false);
    CLI::App* verb = app.add_subcommand("keys", "Print the reference of all configuration keys, as Markdown");
    verb->add_flag("--package", *of_package, "those that the Python package reads, DeepSpeed's among them");
    verb->footer("Example:\n  penstock keys | grep memory\n");
    return {verb, [of_package](Console&, StopSignals&) {
                write_result(*of_package ? package_reference() : reference_table());
                return ExitCode::ok;
            }};
}

}  // namespace

std::vector<Verb> add_verbs(CLI::App& app) {
    return {add_prepare(app), add_train(app), add_plan(app), add_ckpt(app), add_bench(app), add_keys(app)};
}

}  // namespace penstock::trainer
