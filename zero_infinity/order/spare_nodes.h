// Nodes that left a map and are used again, so that it allocates only where it holds more than ever before.
#pragma once

#include <utility>
#include <vector>

namespace penstock::zero {

template <typename Map>
class SpareNodes {
   public:
    // What the map has for the key, which is made where it is not there.
    typename Map::mapped_type& put(Map& map, const typename Map::key_type& key) {
        if (!nodes_.empty() && !map.contains(key)) {
            nodes_.back().key() = key;
            map.insert(std::move(nodes_.back()));
            nodes_.pop_back();
        }
        return map[key];
    }
    void keep(typename Map::node_type node) { nodes_.push_back(std::move(node)); }

   private:
    std::vector<typename Map::node_type> nodes_;
};

}  // namespace penstock::zero
