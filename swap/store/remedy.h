// What to do about a store that is not what was written: the ends of error messages. The snapshots that help lie in the
// directory itself unless another folder was given, so nobody is told to remove it without saving them.
#pragma once

#include <string>
#include <vector>

namespace penstock::store {

// The store opens, but some of its bytes are wrong or cannot be read.
std::string remedy_of_damage(const std::string& directory);
// Likewise of a kept one.
std::string remedy_of_damaged_snapshot();
// It cannot be opened at all.
std::string remedy_of_loss(const std::string& directory);

std::string refusal_of_missing(const std::string& directory, const std::vector<std::string>& manifests);
// Where manifests could not be read: `lines` says which and why.
std::string refusal_of_unread(const std::string& directory, const std::vector<std::string>& lines);

}  // namespace penstock::store
