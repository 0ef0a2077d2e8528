#include "aio/words/host_name.h"

#include <unistd.h>

#include <array>

namespace penstock::aio {

std::string host_name() {
    std::array<char, 65> host{};
    return ::gethostname(host.data(), host.size() - 1) == 0 ? host.data() : "?";
}

}  // namespace penstock::aio
