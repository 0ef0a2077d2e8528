#include "aio/words/error.h"
#include "bench/harness/verbs.h"
#include "tests/aio/fakes/scratch.h"

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <filesystem>

namespace penstock::bench {
namespace {

// What a command line after "io" comes to: the exit code, and the message of an error.
struct Outcome {
    ExitCode code = ExitCode::ok;
    std::string message;
};

Outcome run(std::vector<std::string> arguments) {
    CLI::App app("test");
    const BenchRun measure = add_io_verb(app);
    std::reverse(arguments.begin(), arguments.end());
    arguments.emplace_back("io");
    try {
        app.parse(arguments);
        Report report("io");
        measure(report);
    } catch (const CLI::ParseError& error) {
        return {.code = ExitCode::usage, .message = error.what()};
    } catch (const Error& error) {
        return {.code = error.code(), .message = error.what()};
    }
    return {};
}

void expect(const std::vector<std::string>& arguments, ExitCode code, const std::string& part) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.message;
    EXPECT_NE(outcome.message.find(part), std::string::npos) << "'" << part << "' is not in: " << outcome.message;
}

TEST(IoVerb, RefusesWhatMakesNoSense) {
    const TemporaryDirectory scratch;
    const std::string d = scratch.file("");
    expect({}, ExitCode::usage, "--dir");
    expect({"--dir", d, "--size", "much"}, ExitCode::usage, "--size much");
    expect({"--dir", d, "--size", "1MiB"}, ExitCode::usage, "64MiB or more");
    expect({"--dir", d, "--rounds", "0"}, ExitCode::usage, "--rounds 0");
    expect({"--dir", d, "--rounds", "-3"}, ExitCode::usage, "--rounds");
    expect({"--dir", d, "--seconds", "0"}, ExitCode::usage, "--seconds 0");
    expect({"--dir", d, "--seconds", "nan"}, ExitCode::usage, "--seconds");
    expect({"--dir", d, "--cases", "read,writ"}, ExitCode::usage, "--cases writ: there are read, overwrite");
    expect({"--dir", d, "--cases", "read,read"}, ExitCode::usage, "stands twice");
    expect({"--dir", d, "--points", "1MiBx8,1024KiBx8"}, ExitCode::usage, "stands twice");
    expect({"--dir", d, "--points", "1MiB"}, ExitCode::usage, "--points 1MiB");
    expect({"--dir", d, "--backend", "spdk"}, ExitCode::usage, "auto, io_uring, libaio or threads");
    expect({"--dir", d, "--reader-rate", "0"}, ExitCode::usage, "--reader-rate");
    expect({"--dir", d, "--sustained-bytes", "1GiB"}, ExitCode::usage, "without --sustained");
    expect({"--dir", d, "--tune", "--cases", "read"}, ExitCode::usage, "leave it out");
    expect({"--dir", d + "none"}, ExitCode::usage, "existing directory");
    expect({"--dir", d, "--size", "900TiB"}, ExitCode::does_not_fit, "smaller --size");
    expect({"--dir", d, "--colour"}, ExitCode::usage, "--colour");
    EXPECT_TRUE(std::filesystem::is_empty(d));
}

}  // namespace
}  // namespace penstock::bench
