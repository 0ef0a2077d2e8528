// Programs that were compiled with an earlier or a later penstock.h than the library (CMakeLists.txt makes them).
#pragma once

namespace penstock::testing {

// Creates a store of two objects, writes, commits and reads one, and looks behind what was filled. "" or what is wrong.
const char* call_as_earlier(const char* directory);
const char* call_as_later(const char* directory);
// Sets what the library does not know. The library's answer.
const char* wish_as_later(const char* directory);

}  // namespace penstock::testing
