// The verbs of `penstock ckpt`: what lies in a store's directory, whether it is whole, and its kept snapshots. Need no
// torch.
#pragma once

#include "aio/words/error.h"

#include <string>
#include <vector>

namespace penstock::trainer {

class Console;

struct CkptRequest {
    std::string directory;          // the store's; of a store over several devices the first
    std::vector<std::string> also;  // its further directories, in the order they were created with
    std::string name;               // of a snapshot: a name, a step's number, or a path; empty: the store itself
    std::string snapshot_folder;    // empty: DIRECTORY/kept
    std::string job = "penstock";   // of a lock that is made anew
    bool json = false;              // the result is one JSON object
};

struct CkptResult {
    ExitCode code = ExitCode::ok;
    std::string text;  // for standard output
};

// Each polls an Io of its own and blocks. Progress goes to the console. Throw Error: usage (no such directory or
// snapshot, an impossible name), does_not_fit, storage (in use, foreign, damaged manifests).

// Take no lock and change nothing: beside a running training they tell what is committed at that moment.
CkptResult ckpt_ls(const CkptRequest& request);
CkptResult ckpt_show(const CkptRequest& request);

// Reads every written tile under a shared lock. Storage is the code when one is damaged.
CkptResult ckpt_verify(const CkptRequest& request, Console& console);

// Verifies the store under its exclusive lock and mends what can be mended without loss: lost locks, copies of
// manifests, and damaged tiles whose very bytes a kept snapshot still has, as a new generation with the same client
// state; all damaged tiles or none, because writing one ends what is left of the generation before. Storage is the code
// when damage remains.
CkptResult ckpt_scrub(const CkptRequest& request, Console& console);

// Makes the snapshot `name` of a store that is not in use, in snapshot_folder. What is not finished is removed again.
CkptResult ckpt_keep(const CkptRequest& request, Console& console);
CkptResult ckpt_rm(const CkptRequest& request, Console& console);

}  // namespace penstock::trainer
