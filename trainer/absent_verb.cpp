#include "trainer/absent_verb.h"

#include "aio/words/error.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <string>

namespace penstock::trainer {
namespace {

std::string sentence(const AbsentVerb& verb) {
    return fmt::format(
        "'{}' needs {}, which this program is built without: `./run build` in a checkout of Penstock "
        "makes build/release/penstock, which has it (PENSTOCK_PROGRAM names it to the Python package's "
        "command){}",
        verb.name, verb.needs, verb.instead);
}

}  // namespace

CLI::App* add_absent_verb(CLI::App& app, const AbsentVerb& verb) {
    CLI::App* words = app.add_subcommand(verb.name, sentence(verb));
    words->group("");           // not listed
    words->set_help_flag();     // --help is refused like all else,
    words->fallthrough(false);  // and not taken for that of `app`
    words->prefix_command();    // takes what it does not know
    return words;
}

std::string lines_of_absent_verbs(const CLI::App& app) {
    std::string lines;
    for (const CLI::App* verb : app.get_subcommands([](const CLI::App* each) { return each->get_group().empty(); }))
        lines += '\n' + verb->get_description() + '.';
    return lines;
}

void refuse(const AbsentVerb& verb) {
    throw Error(ExitCode::usage, sentence(verb));
}

}  // namespace penstock::trainer
