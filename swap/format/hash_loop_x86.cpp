#include "swap/format/hash_loop.h"
#include "swap/format/x86_features.h"

namespace penstock::store {

HashLoop fast_hash_loop() noexcept {
    static const HashLoop loop = x86_features().avx2 ? hash_by_avx2 : nullptr;
    return loop;
}

}  // namespace penstock::store
