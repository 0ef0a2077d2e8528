// Runs the fault matrix on the judge that this program was linked with. Arguments: what the matrix must say of it.
#include "tests/aio/fakes/fault_matrix.h"
#include "tests/control.h"

int main(int argc, char** argv) {
    using namespace penstock;
    using namespace penstock::aio;
    std::vector<std::unique_ptr<FaultMatrix>> matrices;  // threads work everywhere
    for (const Fault& fault : faults()) matrices.push_back(std::make_unique<FaultMatrix>(fault, BackendKind::threads));
    return find_mutant(argc > 1 ? argv[1] : "", 100, [&](std::uint64_t seed) {
        std::vector<std::string> complaints;
        for (const auto& matrix : matrices) {
            for (std::string& complaint : matrix->run(seed)) complaints.push_back(std::move(complaint));
        }
        return complaints;
    });
}
