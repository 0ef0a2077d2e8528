// Verbs that need what a lean program is not linked with, in the place of step/step_verb.cpp and pieces/pieces.cpp.
#include "bench/harness/verbs.h"
#include "trainer/absent_verb.h"

namespace penstock::bench {
namespace {

BenchRun absent(CLI::App& app, const trainer::AbsentVerb& verb) {
    add_absent_verb(app, verb);
    return [verb](Report&) { refuse(verb); };
}

}  // namespace

BenchRun add_step_verb(CLI::App& app) {
    return absent(app, {.name = "step", .needs = "LibTorch"});
}

BenchRun add_pieces_verb(CLI::App& app) {
    return absent(app, {.name = "pieces", .needs = "Google Benchmark"});
}

}  // namespace penstock::bench
