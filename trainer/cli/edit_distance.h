// How far a word that is unknown is from one that is known.
#pragma once

#include <cstddef>
#include <string_view>

namespace penstock::trainer {

// Optimal string alignment distance: insertions, deletions, substitutions, and swaps of two neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace penstock::trainer
