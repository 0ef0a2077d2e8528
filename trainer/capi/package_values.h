// Values as the package's texts spell them.
#pragma once

#include "trainer/config/key_table.h"

#include <nlohmann/json_fwd.hpp>

namespace penstock::trainer {

nlohmann::json json_of(const SettingValue& value);
// The word that the key has for this one: "FusedAdam" is Adam, "none" is cpu; letters of any case.
nlohmann::json in_our_words(const KeySpec& key, const nlohmann::json& value);
// Of what must be off: false, 0, "auto", empty, or a section that says "enabled": false.
bool is_off(const nlohmann::json& value);

}  // namespace penstock::trainer
