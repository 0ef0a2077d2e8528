// A list of groups of parameters, which have options of their own.
#pragma once

#include "trainer/config/key_table.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace penstock::trainer {

// Of a key of type groups. Throws Error (usage) with `place` in front, naming what is wrong: "optimizer.groups[1].lr".
std::vector<SettingGroup> read_groups(const KeySpec& key, const nlohmann::json& value, const std::string& place);

}  // namespace penstock::trainer
