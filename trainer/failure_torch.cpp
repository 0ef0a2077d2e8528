// The half of failure.h for a program that computes by torch.
#include "trainer/cli/failure.h"
#include "zero_infinity/engine/room/out_of_memory.h"

#include <c10/util/Exception.h>

namespace penstock::trainer {

Failure current_failure() noexcept {
    try {
        throw;
    } catch (const c10::OutOfMemoryError& error) {
        return {ExitCode::out_of_memory, std::string("out of memory on the device: ") + error.what_without_backtrace()};
    } catch (const c10::Error& error) {
        if (engine::is_out_of_memory(error)) return out_of_host_memory();
        return {ExitCode::internal, std::string("torch: ") + error.what_without_backtrace()};
    } catch (...) {
        // What torch's libraries throw has no type of theirs.
        Failure failure = failure_without_torch();
        const bool memory = failure.code == ExitCode::internal && engine::says_out_of_memory(failure.message);
        return memory ? out_of_host_memory() : failure;
    }
}

}  // namespace penstock::trainer
