// What follows from other keys where nobody says it.
#pragma once

#include "trainer/config/settings.h"

namespace penstock::trainer {

// The settings with every value that follows from others. Throws Error (usage) where what is given does not go
// together, or has no effect.
Settings with_derived(Settings settings);

}  // namespace penstock::trainer
