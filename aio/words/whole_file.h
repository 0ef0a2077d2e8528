// A small file that is whole or not there: written aside, made durable, then given its name. Each call returns 0 or an
// errno; what to say of it, and what to do with the file aside, knows the caller. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace penstock::aio {

// Writes all of it from where `fd` stands, and makes it durable.
int write_whole(int fd, std::string_view text) noexcept;

// Makes the name durable that a file has just been given, or a directory: its directory is.
int sync_name(const std::string& path);

// Gives the file that was written aside its name, in the place of what has it, and makes the name durable.
int give_name(const std::string& aside, const std::string& path);

}  // namespace penstock::aio
