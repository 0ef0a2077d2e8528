// Runs the matrix of bad disks on the store that this program was linked with. Arguments: what the matrix must say.
#include "tests/control.h"
#include "tests/swap/bad_disks/faults_matrix.h"

int main(int argc, char** argv) {
    using namespace penstock;
    std::vector<std::unique_ptr<penstock::testing::FaultsMatrix>> matrices;
    for (const penstock::testing::BadDisk& disk : penstock::testing::bad_disks())
        matrices.push_back(std::make_unique<penstock::testing::FaultsMatrix>(disk));
    return find_mutant(argc > 1 ? argv[1] : "", 6, [&](std::uint64_t seed) {
        std::vector<std::string> complaints;
        for (const auto& matrix : matrices) {
            for (std::string& complaint : matrix->run(seed)) complaints.push_back(std::move(complaint));
        }
        return complaints;
    });
}
