// A configuration as a client reads it that brings its own model: the keys of the package, by the one key table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::trainer {

struct ResolvedConfig {
    std::string json;                // trainer/capi/penstock_config.h says what it has
    std::vector<std::string> wrong;  // one line each
};

// `name` is what it is called; `known`: JSON of values for keys that are "auto"; `own`: JSON of the sections that the
// client brings itself; `ranks`: processes that train. What is wrong is no exception.
ResolvedConfig resolve_config(std::string_view text, const std::string& name, std::string_view known,
                              std::string_view own = "[]", std::uint32_t ranks = 1);

}  // namespace penstock::trainer
