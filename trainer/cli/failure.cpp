#include "trainer/cli/failure.h"

#include "aio/words/byte_count.h"
#include "aio/words/error.h"
#include "trainer/cli/memory_limits.h"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

namespace penstock::trainer {
namespace {

constexpr auto out_of_memory_message =
    "out of memory on the host, outside the pool; compute needs room beside memory.host_budget: fewer rows per "
    "micro-batch, a shorter "
    "context or a smaller budget leave more. The last committed step is safe";

// With the process's own limits, of which nobody else would say that they were reached.
std::string with_limits(std::string message) {
    for (const MemoryLimit& limit : memory_limits())
        message += fmt::format(". The limit on {} is {}", limit.name, bytes_text(limit.bytes));
    return message;
}

// A thread that may not be made: nothing else that we or torch call fails so.
Failure of_system(const std::system_error& error) {
    if (error.code() == std::errc::operation_not_permitted)
        return {ExitCode::out_of_memory,
                fmt::format("the system refuses one more thread ({}): a container's seccomp profile forbids it; allow "
                            "clone and clone3. The last committed step is safe",
                            error.what())};
    if (error.code() != std::errc::resource_unavailable_try_again) return {ExitCode::internal, error.what()};
    return {ExitCode::out_of_memory,
            with_limits(fmt::format(
                "the system refuses one more thread ({}): raise the limit on processes (ulimit -u) or of the "
                "container (pids.max), or lower run.threads. The last committed step is safe",
                error.what()))};
}

}  // namespace

Failure out_of_host_memory() {
    return {ExitCode::out_of_memory, with_limits(out_of_memory_message)};
}

Failure failure_without_torch() noexcept {
    try {
        throw;
    } catch (const Error& error) {
        return {error.code(), error.what()};
    } catch (const std::bad_alloc&) {
        return out_of_host_memory();
    } catch (const std::filesystem::filesystem_error& error) {
        return {ExitCode::storage, fmt::format("{}; check the path, its permissions and the device", error.what())};
    } catch (const std::system_error& error) {
        return of_system(error);
    } catch (const std::exception& error) {
        return {ExitCode::internal, error.what()};
    } catch (...) {
        return {ExitCode::internal, "an unknown exception"};
    }
}

}  // namespace penstock::trainer
