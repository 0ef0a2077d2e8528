#include "trainer/result.h"

#include "aio/words/error.h"

#include <cstdio>

namespace penstock::trainer {

void write_result(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
        throw Error(ExitCode::storage, "cannot write the result to standard output");
}

}  // namespace penstock::trainer
