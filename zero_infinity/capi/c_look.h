// What a directory holds, in the C interface's words: seen without opening it.
#pragma once

#include "swap/directory/store_look.h"
#include "zero_infinity/capi/penstock_look.h"

#include <optional>
#include <string>

namespace penstock::zero {

// Of a directory that is there; nothing where no store is. Throws Refusal (storage) where no generation is whole, and
// as store::look_at_store().
std::optional<store::Manifest> committed_at(const std::string& directory, penstock_look& look);

}  // namespace penstock::zero
