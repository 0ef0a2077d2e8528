// The verb that needs what a lean program is not linked with, in the place of step/step_verb.cpp.
#include "bench/harness/verbs.h"
#include "trainer/absent_verb.h"

namespace penstock::bench {

BenchRun add_step_verb(CLI::App& app) {
    const trainer::AbsentVerb verb{.name = "step", .needs = "LibTorch"};
    add_absent_verb(app, verb);
    return [verb](Report&) { refuse(verb); };
}

}  // namespace penstock::bench
