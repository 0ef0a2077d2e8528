// The name of this machine, for messages and for what says who wrote it.
#pragma once

#include <string>

namespace penstock::aio {

// As gethostname() has it, of at most 64 bytes; "?" where it has none.
std::string host_name();

}  // namespace penstock::aio
