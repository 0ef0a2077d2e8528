#include "trainer/cli/config_file.h"

#include "aio/words/error.h"
#include "swap/directory/descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace penstock::trainer {
namespace {

constexpr std::size_t max_config_bytes = 1U << 20;

}  // namespace

// To the end and not by its length: a pipe has none.
std::string read_config(const std::string& path) {
    const store::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) throw Error(ExitCode::usage, fmt::format("cannot open {}: {}", path, std::strerror(errno)));
    std::string text(max_config_bytes + 1, ' ');
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw Error(ExitCode::usage, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    if (done > max_config_bytes)
        throw Error(ExitCode::usage,
                    fmt::format("{} is longer than {} bytes, which no configuration is; check the path", path,
                                max_config_bytes));
    text.resize(done);
    return text;
}

}  // namespace penstock::trainer
