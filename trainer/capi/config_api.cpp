#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"
#include "trainer/capi/penstock_config.h"
#include "trainer/capi/resolved_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

struct penstock_config {
    std::string json;
};

namespace penstock::trainer {
namespace {

// All of it, one per line where it is more than one.
std::string message_of(const std::string& name, const ResolvedConfig& resolved) {
    if (resolved.wrong.size() == 1) return fmt::format("{}: {}", name, resolved.wrong.front());
    return fmt::format("{}: {} things are wrong:\n  {}", name, resolved.wrong.size(),
                       fmt::join(resolved.wrong, "\n  "));
}

penstock_status resolve(const penstock_config_text* given, penstock_config** config, penstock_error* error) {
    store::required(config, "config");
    *config = nullptr;
    constexpr std::size_t least = offsetof(penstock_config_text, known);
    const auto text = store::taken(given, least, "penstock_config_text");
    store::required(text.json, "penstock_config_text.json");
    store::required(text.name, "penstock_config_text.name");
    const ResolvedConfig resolved =
        resolve_config(text.json, text.name, text.known == nullptr ? "{}" : text.known,
                       text.own == nullptr ? "[]" : text.own, std::max<std::uint32_t>(text.ranks, 1));
    *config = std::make_unique<penstock_config>(penstock_config{resolved.json}).release();
    if (resolved.wrong.empty()) return PENSTOCK_OK;
    return store::tell(error, PENSTOCK_USAGE, message_of(text.name, resolved));
}

}  // namespace
}  // namespace penstock::trainer

extern "C" {

uint32_t penstock_config_abi_version(void) {
    return PENSTOCK_CONFIG_ABI_VERSION;
}

penstock_status penstock_config_resolve(const penstock_config_text* text, penstock_config** config,
                                        penstock_error* error) {
    // Not guarded(): the message of a text that is wrong comes with a status and not by an exception.
    try {
        const penstock_status status = penstock::trainer::resolve(text, config, error);
        return status == PENSTOCK_OK ? penstock::store::tell(error, status, {}) : status;
    } catch (...) {
        return penstock::store::tell_exception(error);
    }
}

const char* penstock_config_json(const penstock_config* config) {
    return config == nullptr ? nullptr : config->json.c_str();
}

void penstock_config_free(penstock_config* config) {
    delete config;
}
}
