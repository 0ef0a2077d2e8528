#include "aio/words/error.h"
#include "bench/harness/verbs.h"

#include <benchmark/benchmark.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

namespace penstock::bench {
namespace {

void piece_of_the_test(benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(state.range(0));
    state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(piece_of_the_test)->ArgName("threads")->Arg(1)->Arg(3);

void plain_piece_of_the_test(benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(state.iterations());
}
BENCHMARK(plain_piece_of_the_test);

void failing_piece_of_the_test(benchmark::State& state) {
    state.SkipWithError("not here");
}
BENCHMARK(failing_piece_of_the_test);

void run(Report& report, const std::string& filter) {
    CLI::App app("test");
    const BenchRun measure = add_pieces_verb(app);
    app.parse("pieces --rounds 2 --seconds 0.001 --filter '" + filter + "'");
    measure(report);
}

TEST(Pieces, EachNumberOfThreadsIsAFigureOfItsOwn) {
    Report report("pieces");
    run(report, "piece_of_the_test");
    ASSERT_EQ(report.figures().size(), 5U);
    for (const char* name :
         {"piece_of_the_test/threads:1", "piece_of_the_test/threads:1: bytes", "piece_of_the_test/threads:3",
          "piece_of_the_test/threads:3: bytes", "plain_piece_of_the_test"}) {
        const Figure* figure = report.find(name);
        ASSERT_NE(figure, nullptr) << name;
        EXPECT_EQ(figure->rounds.size(), 2U) << name;
    }
    EXPECT_NE(report.json().find("failing_piece_of_the_test: left out: not here"), std::string::npos);
}

TEST(Pieces, AFilterThatMatchesNothingIsRefused) {
    Report report("pieces");
    EXPECT_THROW(run(report, "no_such_piece"), Error);
}

}  // namespace
}  // namespace penstock::bench
