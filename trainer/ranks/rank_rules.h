// What several ranks of one run must have alike, and what they do not do yet. Without effect for one.
#pragma once

#include "trainer/config/config.h"
#include "zero_infinity/ranks/communicator.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::trainer {

// Takes what several ranks do in one way only: their weights are in host memory, a step is updated behind its norm,
// gradients stay in memory; a line for each that was asked for otherwise. `flags` are options of the command line.
// Throws Error (usage) that names what they do not do yet.
std::vector<std::string> fit_to_ranks(TrainConfig& config, const std::vector<std::string>& flags);

// All ranks call it, before one of them makes anything: same keys, same data, one place for the stores. Throws Error
// (usage) that names who differs in what, with the same words on all.
void agree_on_run(zero::Communicator& ranks, const TrainConfig& config, const std::string& data_hash);

// Cores for this rank's arithmetic: those it may use, divided among the ranks of this machine that may use the same.
// All ranks call it.
unsigned cores_of_rank(zero::Communicator& ranks);
// So many of them are on this rank's machine, and have their stores on the same devices. All ranks call it.
std::uint32_t ranks_of_machine(zero::Communicator& ranks);

}  // namespace penstock::trainer
