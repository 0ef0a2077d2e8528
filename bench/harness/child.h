// Another program, run to its end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace penstock::bench {

class Interruption;

struct ChildOutcome {
    int exit_status = 0;  // 127: there is no such program; 128 + n: ended by signal n
    std::string output;
    std::string errors;
};

// `arguments[0]` is looked for on the PATH. The child does not outlive the call. Throws Error: interrupted (the child
// was stopped), storage (it took longer than the deadline), internal (it could not be started at all).
ChildOutcome run_child(const std::vector<std::string>& arguments, std::chrono::milliseconds deadline,
                       Interruption& stop);

}  // namespace penstock::bench
