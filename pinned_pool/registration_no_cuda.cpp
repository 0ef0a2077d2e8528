// Built without CUDA: there is nobody to register with.
#include "pinned_pool/registration.h"

namespace penstock::pool {

std::string register_with_device(void* /*data*/, std::size_t /*bytes*/) {
    return "host memory is not registered with a device: this program was built without CUDA";
}

void unregister_from_device(void* /*data*/) noexcept {}

}  // namespace penstock::pool
