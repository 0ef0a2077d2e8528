// The threads that torch computes with.
#pragma once

namespace penstock::trainer {

// Compute thread. torch computes with so many from now on, and all are made now: libgomp, which makes them as they are
// first needed, ends the process where the system refuses one. Throws std::system_error where it does; Error
// (out_of_memory) where a limit of the process leaves no room to compute.
void make_compute_threads(unsigned count);

}  // namespace penstock::trainer
