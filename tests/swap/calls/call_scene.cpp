#include "tests/swap/calls/call_scene.h"

namespace penstock::testing {

CallScenes all_scenes() {
    CallScenes scenes;
    add_store_scenes(scenes);
    add_snapshot_scenes(scenes);
    add_c_scenes(scenes);
    return scenes;
}

}  // namespace penstock::testing
