#include "zero_infinity/engine/torch/generator.h"

#include "aio/words/error.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>

namespace penstock::engine {

namespace {

at::Tensor state_of(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    return generator.get_state();
}

void set_state(at::Generator generator, std::string_view state) {
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

const at::Generator& default_generator(const c10::Device& device) {
    return at::globalContext().defaultGenerator(device);
}

}  // namespace

std::string generator_state(const c10::Device& device) {
    std::string all;
    const auto append = [&](const c10::Device& of) {
        const at::Tensor state = state_of(default_generator(of));
        all.append(static_cast<const char*>(state.const_data_ptr()), state.nbytes());
    };
    if (!device.is_cpu()) append(device);
    append(at::kCPU);
    return all;
}

void set_generator_state(const c10::Device& device, const std::string& state) {
    std::string_view rest = state;
    if (!device.is_cpu()) {
        const std::size_t own = state_of(default_generator(device)).nbytes();
        set_state(default_generator(device), rest.substr(0, own));
        rest.remove_prefix(std::min(own, rest.size()));
        if (rest.empty()) return;
    }
    set_state(default_generator(at::kCPU), rest);
}

}  // namespace penstock::engine
