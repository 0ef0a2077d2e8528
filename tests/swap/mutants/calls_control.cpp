// Runs the matrix of failing calls on the store that this program was linked with. Arguments: "SCENE: WORDS", what the
// matrix must say of the scenes whose names begin so.
#include "tests/control.h"
#include "tests/swap/calls/call_matrix.h"

#include <algorithm>
#include <memory>

int main(int argc, char** argv) {
    using namespace penstock;
    constexpr std::size_t faults_of_a_scene = 10;  // in a run
    const std::string wanted = argc > 1 ? argv[1] : ": ";
    const std::size_t colon = wanted.find(": ");
    const penstock::testing::CallScenes scenes = penstock::testing::all_scenes();
    std::vector<std::unique_ptr<penstock::testing::CallMatrix>> matrices;
    for (const auto& scene : scenes) {
        if (scene->name().starts_with(wanted.substr(0, colon)))
            matrices.push_back(std::make_unique<penstock::testing::CallMatrix>(*scene));
    }
    return find_mutant(wanted.substr(colon + 2), argc > 1 ? 200 : 1, [&](std::uint64_t seed) {
        std::vector<std::string> complaints;
        for (const auto& matrix : matrices) {
            std::vector<penstock::testing::CallFault> faults = matrix->faults(seed);
            faults.resize(std::min(faults.size(), faults_of_a_scene));
            for (const penstock::testing::CallFault& fault : faults) {
                if (std::string complaint = matrix->run(fault); !complaint.empty())
                    complaints.push_back(std::move(complaint));
            }
        }
        return complaints;
    });
}
