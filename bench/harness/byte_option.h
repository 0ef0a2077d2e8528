// Numbers of bytes on a verb's command line, as aio/words/byte_count.h reads them.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::bench {

// "1.5GiB" in bytes. Throws Error (usage) naming the option for other text and for 0.
std::uint64_t byte_option(const std::string& text, const std::string& option);

// "1.5GiB" as "1610612736": to be a transformation of the command line's text. Throws CLI::ValidationError.
std::string bytes_of_text(const std::string& text);

}  // namespace penstock::bench
