// What a configuration leaves to "auto" that decides numbers, and that nobody knows.
#pragma once

#include "trainer/config/settings.h"

#include <string>
#include <vector>

namespace penstock::trainer {

// Of the keys that the text leaves to "auto", those that PackageRule::needed names, that the client does not know, and
// that follow from no other key. REQUIRES: what follows is derived (trainer/config/derived_settings.h).
std::vector<std::string> missing_values(const Settings& settings, const std::vector<std::string>& automatic);

}  // namespace penstock::trainer
