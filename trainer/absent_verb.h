// A verb that this program was built without.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace penstock::trainer {

struct AbsentVerb {
    const char* name;
    const char* needs;         // "LibTorch"
    const char* instead = "";  // what does the same elsewhere, behind "; "
};

// It takes whatever follows it, and is not among the verbs of the help.
CLI::App* add_absent_verb(CLI::App& app, const AbsentVerb& verb);

// For the end of the help: a line for each, of what has it; empty where there is none.
std::string lines_of_absent_verbs(const CLI::App& app);

// Throws Error (usage) that says what has it.
[[noreturn]] void refuse(const AbsentVerb& verb);

}  // namespace penstock::trainer
