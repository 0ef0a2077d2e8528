// The program penstock-bench: one verb per thing that is measured. `penstock bench` starts it.
#include "bench/bench_command.h"

int main(int count, char** arguments) {
    return static_cast<int>(penstock::bench::run_command(count, arguments));
}
