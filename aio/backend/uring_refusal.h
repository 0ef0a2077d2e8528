// Why a kernel refuses io_uring, or one of its registrations, in one line for a person.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace penstock::aio {

// Throws Error (storage) that names the call and the likely cause (seccomp, sysctl, a limit).
[[noreturn]] void refuse_uring(const char* call, int errno_value);

// A privileged user is never refused for the limit on locked memory.
std::string refusal_of_memory(int errno_value, std::uint64_t bytes);
std::string refusal_of_files(int errno_value, std::size_t count);

}  // namespace penstock::aio
