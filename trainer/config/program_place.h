// The member of TrainConfig that a key of the program fills, and the default that it has there.
#pragma once

#include "trainer/config/config.h"
#include "trainer/config/key_table.h"
#include "zero_infinity/keys/key_place.h"

namespace penstock::trainer {

inline void take(HeadKind& member, const SettingValue& value) {
    member = std::get<bool>(value) ? HeadKind::tied : HeadKind::own;
}
inline SettingValue setting_of(HeadKind member) {
    return member == HeadKind::tied;
}

// A path of members, e.g. place<&TrainConfig::session, &engine::SessionOptions::seed>.
template <auto... Path>
inline constexpr KeyPlace place = zero::place_in<TrainConfig, Path...>;
template <auto... Path>
inline constexpr KeyPlace place_with_default = zero::place_with_default_in<TrainConfig, Path...>;

// REQUIRES, of both: the key has such a place.
inline void fill(const KeySpec& key, const SettingValue& value, TrainConfig& config) {
    zero::CoreOptions& core = config.session;
    key.place.fill(value, key.place.in_core ? static_cast<void*>(&core) : &config);
}
inline SettingValue read(const KeySpec& key, const TrainConfig& config) {
    const zero::CoreOptions& core = config.session;
    return key.place.read(key.place.in_core ? static_cast<const void*>(&core) : &config);
}

}  // namespace penstock::trainer
