// Torch found no memory for compute: what takes it, tier by tier, and which settings leave more.
#pragma once

#include "aio/words/error.h"
#include "zero_infinity/plan/memory_plan.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::engine {

// Of the host or of a device; torch has a type of error for the second alone.
bool is_out_of_memory(const c10::Error& error);

// The same of any error's text, for what reaches us as another kind.
bool says_out_of_memory(std::string_view message);

// What compute held when it was refused more.
struct ComputeMemory {
    std::string unit;                 // that was running
    std::string pool_table;           // of the session
    std::string activations_setting;  // as SettingNames
    std::uint64_t device_bytes = 0;   // that the session took of a device with memory of its own; 0: there is none
    std::uint64_t input_bytes = 0;    // of units, kept for backward outside of the pool
    std::uint64_t graph_bytes = 0;    // that are kept
    std::uint64_t call_bytes = 0;     // the most that one call took before; 0: not known
    bool graphs_stay = false;         // they are not given up
};

Error out_of_memory(const c10::Error& error, const ComputeMemory& memory, const zero::SettingNames& names);

}  // namespace penstock::engine
