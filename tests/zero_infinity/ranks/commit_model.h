// Every order in which the ranks of a run can write, commit, be killed and begin again, breadth first, on the product's
// own CommitBarrier and decide().
//
// A rank has one tile in two slots and two manifests of two copies, as swap/FORMAT.md says. Within a step it writes,
// flushes and writes both copies; its word in a small collective goes at any time meanwhile. After one rank was killed
// the others go on as far as they can alone, and end at any time; when all have ended, a life begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::testing {

struct CommitModel {
    std::uint8_t ranks = 2;  // at most 3
    std::uint8_t generations = 4;
    std::uint8_t kills = 3;
    bool small_collectives = true;  // one in each step

    // What the ranks do not forget.
    bool wait_before_writes = true;
    bool wait_after_erasing = true;
    bool compare_incarnations = true;
    bool take_the_least = true;  // of their newest generations
};

struct Explored {
    std::uint64_t states = 0;
    std::string wrong;             // in the first state where something is; empty: nothing is anywhere
    std::vector<std::string> way;  // the shortest one there
};

// What must hold of each beginning life: something that all ranks have is found, is not older than the newest
// generation that all had reported, is of one life on all ranks, and was not written over. And somebody can go on until
// all generations are committed.
Explored explore(const CommitModel& model);

}  // namespace penstock::testing
