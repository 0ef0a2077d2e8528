// Runs the two histories on the store that this program was linked with. Arguments: what they must say of it.
#include "tests/control.h"
#include "tests/swap/store/histories.h"

int main(int argc, char** argv) {
    using namespace penstock::testing;
    return penstock::find_mutant(argc > 1 ? argv[1] : "", argc > 1 ? 20 : 6, [&](std::uint64_t seed) {
        std::vector<std::string> complaints = run_histories(DriveFault::heals, seed);
        for (std::string& complaint : run_histories(DriveFault::stuck, seed))
            complaints.push_back(std::move(complaint));
        return complaints;
    });
}
