#include "zero_infinity/engine/generator.h"

#include "aio/words/error.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <cstring>
#include <mutex>

namespace penstock::engine {

std::string generator_state(const c10::Device& device) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    const at::Tensor state = generator.get_state();
    return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

void set_generator_state(const c10::Device& device, const std::string& state) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    const at::Tensor bytes = at::empty({static_cast<std::int64_t>(state.size())}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), state.data(), state.size());
    try {
        generator.set_state(bytes);
    } catch (const c10::Error& error) {
        throw Error(ExitCode::storage,
                    std::string("the state of torch's generator in the checkpoint is not one of this "
                                "device: ") +
                        error.what_without_backtrace());
    }
}

}  // namespace penstock::engine
