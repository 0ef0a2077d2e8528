// Runs the matrix of lies on the hash that this program was linked with. Arguments: what the matrix must say of it.
#include "tests/control.h"
#include "tests/swap/store/wrong_data_matrix.h"

int main(int argc, char** argv) {
    using namespace penstock;
    std::vector<std::unique_ptr<penstock::testing::WrongDataMatrix>> matrices;
    for (const penstock::testing::Lie& lie : penstock::testing::lies())
        matrices.push_back(std::make_unique<penstock::testing::WrongDataMatrix>(lie));
    return find_mutant(argc > 1 ? argv[1] : "", 20, [&](std::uint64_t seed) {
        std::vector<std::string> complaints;
        for (const auto& matrix : matrices) {
            for (std::string& complaint : matrix->run(seed)) complaints.push_back(std::move(complaint));
        }
        return complaints;
    });
}
