// Every configuration key, once: parsing, suggestions, the reference in docs/ and the rule at resume are all
// derived from this table, to which the session's own keys belong (zero_infinity/keys/session_keys.h).
#pragma once

#include "zero_infinity/keys/key_spec.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::trainer {

using zero::Alias;
using zero::as_package;
using zero::AtResume;
using zero::auto_text;
using zero::Client;
using zero::Effect;
using zero::expectation;
using zero::found_text;
using zero::group_expectation;
using zero::KeyPlace;
using zero::KeyRange;
using zero::KeySpec;
using zero::KeyType;
using zero::kind_of;
using zero::obeyed;
using zero::package_expectation;
using zero::PackageRule;
using zero::parse_config;
using zero::same_word;
using zero::SettingBandwidth;
using zero::SettingDirectory;
using zero::SettingGroup;
using zero::SettingValue;
using zero::spelled;

std::span<const KeySpec> keys() noexcept;          // the program's
std::span<const KeySpec> package_keys() noexcept;  // that the program does not have
std::vector<const KeySpec*> keys_of(Client client);
const KeySpec* find_key(std::string_view path, Client client = Client::program) noexcept;  // null when unknown
bool is_key(std::string_view path) noexcept;                                               // of any client
// The default as JSON: of the table, or of the member that the key fills; empty: the key is required.
std::string default_text(const KeySpec& key);
bool is_section(std::string_view path, Client client = Client::program) noexcept;  // a proper prefix of a key
// The last words of its own keys.
std::vector<std::string_view> words_of_section(std::string_view path, Client client = Client::program);
// The known key or section whose name is nearest to an unknown one (by edit distance; the same last word in another
// section counts as near).
std::string nearest_key(std::string_view unknown, Client client = Client::program);

// The reference as Markdown, one row per key: the program's, as a table; the package's, as a table of the keys that are
// obeyed and one of all others.
std::string reference_table();
std::string package_reference();

}  // namespace penstock::trainer
