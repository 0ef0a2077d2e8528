// Runs the matrix of kills on the store that this program was linked with. Arguments: what the matrix must say of it.
#include "tests/aio/fakes/scratch.h"
#include "tests/control.h"
#include "tests/swap/kills/kill_matrix.h"

int main(int argc, char** argv) {
    using namespace penstock::testing;
    const std::filesystem::path parent = penstock::aio::quick_temporary_path();
    KillMatrix all(parent);
    KillMatrix torn_commits(parent, KillFocus::torn_commits);
    return penstock::find_mutant(argc > 1 ? argv[1] : "", argc > 1 ? 200 : 8, [&](std::uint64_t seed) {
        return seed % 4 == 0 ? all.run(seed) : torn_commits.run(seed);
    });
}
