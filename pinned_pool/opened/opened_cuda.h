// The CUDA runtime, opened when it is first called: for one library that serves machines with and without CUDA.
//
// Linked in place of the runtime: opened_cuda.cpp defines the runtime's functions under their own names and hands each
// call to the library that was found. Where none was, each answers cudaErrorSharedObjectInitFailed, and
// cudaGetErrorString() says of that error what was looked for.
#pragma once

#include <span>
#include <string>

namespace penstock::pool {

// Stays open for as long as the process lives.
struct OpenedCuda {
    void* library = nullptr;  // for dlsym(), which finds the runtime's functions there or in what it is linked to
    std::string missing;      // without one: what was looked for, and what brings it, in one line
};

// The first of: what torch in this process is linked to, a library of `names` that is loaded, one that the loader
// finds.
OpenedCuda open_cuda(std::span<const char* const> names);

}  // namespace penstock::pool
