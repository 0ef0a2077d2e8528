// `penstock bench`: the measurements are a program of their own, penstock-bench, beside this one.
#pragma once

namespace penstock::trainer {

// This process becomes penstock-bench with the arguments that follow the verb, untouched. Returns never; throws Error
// (usage) when the program is not there. `arguments` is main's, with the verb at index 1.
[[noreturn]] void become_bench_program(char** arguments);

}  // namespace penstock::trainer
