// How sizes, instants and bytes of a client's state are shown.
#pragma once

#include "swap/format/manifest.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

std::string size_text(std::uint64_t bytes);        // "1.52 GB", as drives and fio count
std::string time_text(std::uint64_t seconds);      // "2026-11-21 03:54:12 UTC"
std::string value_text(const std::string& value);  // printable and at most 60 columns, else "<123 bytes>"

// A string where it is UTF-8, else {"bytes": 123, "hex": "…"}.
nlohmann::ordered_json json_of_value(const std::string& value);
std::optional<std::int64_t> number_in(const std::string& text);         // nothing but digits and a sign
// Of the program's stores, and of the Python package's, which counts "updates"; none where a client says neither.
std::optional<std::int64_t> step_of(const store::ClientState& client);
nlohmann::ordered_json json_of_step(const store::ClientState& client);  // a number or null
std::string dump(const nlohmann::ordered_json& object);                 // one line, with its end

// Columns as wide as their longest cell, two spaces between; one line per row.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace penstock::trainer
