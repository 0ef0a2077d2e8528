// The half of verbs.h for a program without LibTorch.
#include "trainer/absent_verb.h"
#include "trainer/verbs.h"

#include <string>

namespace penstock::trainer {
namespace {

Verb absent(CLI::App& app, const AbsentVerb& verb) {
    return {add_absent_verb(app, verb), [verb](Console&, StopSignals&) -> ExitCode { refuse(verb); }};
}

}  // namespace

Verb add_train(CLI::App& app) {
    return absent(
        app,
        {.name = "train", .needs = "LibTorch", .instead = "; in Python, penstock.initialize() trains any torch model"});
}

Verb add_plan(CLI::App& app) {
    return absent(app, {.name = "plan",
                        .needs = "LibTorch",
                        .instead = "; in Python, `penstock plan MODULE:FUNCTION` plans any torch model"});
}

}  // namespace penstock::trainer
