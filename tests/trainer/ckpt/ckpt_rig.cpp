#include "tests/trainer/ckpt/ckpt_rig.h"

#include "aio/words/error.h"
#include "trainer/ckpt/ckpt_command.h"
#include "trainer/cli/console.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>
#include <utility>

namespace penstock::testing {

nlohmann::json CkptEnded::object() const {
    return nlohmann::json::parse(output);
}

namespace {

trainer::CkptResult run_ckpt(std::vector<std::string> arguments, std::ostream& errors) {
    arguments.insert(arguments.begin(), "ckpt");
    std::reverse(arguments.begin(), arguments.end());
    spdlog::logger logger("test", std::make_shared<spdlog::sinks::ostream_sink_st>(errors));
    logger.set_pattern("%v");
    trainer::Console console(logger, trainer::Console::Kind::file);
    CLI::App app("test", "penstock");
    const auto run = trainer::add_ckpt_verb(app);
    app.parse(arguments);
    return run(console);
}

}  // namespace

CkptEnded ckpt(std::vector<std::string> arguments) {
    std::ostringstream errors;
    try {
        const trainer::CkptResult result = run_ckpt(std::move(arguments), errors);
        return {static_cast<int>(result.code), result.text, errors.str()};
    } catch (const CLI::ParseError& error) {
        return {2, "", error.what()};
    } catch (const Error& error) {
        return {static_cast<int>(error.code()), "", error.what()};
    }
}

std::string ckpt_telling(std::vector<std::string> arguments, std::ostream& errors) {
    return run_ckpt(std::move(arguments), errors).text;
}

}  // namespace penstock::testing
