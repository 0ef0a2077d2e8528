// Runs the real program as a user would.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace penstock::testing {

struct Ended {
    int code = -1;       // exit code, or 128 + signal
    std::string output;  // standard output
    std::string errors;  // standard error
};

// A process in `directory`. Killed when still running at the end.
class Program {
   public:
    // `command` is an absolute path and its arguments.
    Program(const std::string& directory, const std::vector<std::string>& command);
    ~Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    pid_t pid() const noexcept { return pid_; }
    // True once standard error contains `text`; false when the process ended before. Polls.
    bool says(const std::string& text);
    Ended wait();

   private:
    pid_t pid_ = -1;
    std::string output_path_;
    std::string errors_path_;
};

Ended run_command(const std::string& directory, const std::vector<std::string>& command);
// The same for PENSTOCK_PROGRAM.
Ended run(const std::string& directory, const std::vector<std::string>& arguments);
// PENSTOCK_PROGRAM and the arguments, as a command.
std::vector<std::string> penstock(const std::vector<std::string>& arguments);

// Makes text.tokens and config.json in the directory, for a model whose steps take milliseconds.
void write_toy(const std::string& directory);

}  // namespace penstock::testing
