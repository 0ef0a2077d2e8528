// A store as the scenes have it: made of generations of an Exercise, opened as programs open it.
#pragma once

#include "swap/store/open_store.h"
#include "tests/swap/store/exercise.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::testing {

inline constexpr std::uint64_t newest_generation = 3;
inline const Exercise call_exercise{5};

enum class CallBackend : std::uint8_t {
    one_thread,  // whose calls come in the same order each time
    best,
};

std::vector<std::string> call_store_paths(const std::string& root, std::size_t devices);
void start_call_io(store::OpenStore& open, CallBackend backend,
                   std::chrono::nanoseconds deadline = aio::default_deadline);
store::OpenStore lock_call_store(const std::vector<std::string>& paths, CallBackend backend,
                                 std::chrono::nanoseconds deadline = aio::default_deadline);
store::TensorStore& create_call_store(store::OpenStore& open);

// With generations 0 to `last`; none: created, and nothing committed.
void make_call_store(const std::vector<std::string>& paths, std::optional<std::uint64_t> last);

// Throws Error for what the store says.
void throw_error(const std::optional<store::StoreError>& error);

// What is wrong with the store in `paths`, opened and read as a whole: its generation must be one of `allowed`, and one
// more must be possible, and found again. Empty: nothing.
std::string check_call_store(const std::vector<std::string>& paths, const std::vector<std::uint64_t>& allowed);

}  // namespace penstock::testing
