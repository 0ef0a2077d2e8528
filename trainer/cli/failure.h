// How an exception ends the program.
#pragma once

#include "aio/words/error.h"

#include <string>

namespace penstock::trainer {

struct Failure {
    ExitCode code = ExitCode::internal;
    std::string message;  // one line where the exception had one
};

// Of the exception that is being handled. REQUIRES: called from a catch block. failure_torch.cpp knows torch's, too;
// failure_no_torch.cpp is for programs that cannot meet them.
Failure current_failure() noexcept;

// The same of one that is not torch's.
Failure failure_without_torch() noexcept;

// With the process's own limits on it.
Failure out_of_host_memory();

}  // namespace penstock::trainer
