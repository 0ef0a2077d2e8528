"""What this machine has for a training: memory and its limits, the allocator, other processes, the C++ program."""
