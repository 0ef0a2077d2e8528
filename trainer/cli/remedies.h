// What this program's tools can do about a store that is not what was written.
#pragma once

#include "swap/directory/remedy.h"

namespace penstock::trainer {

// Names `penstock ckpt` and the snapshots, which lie in the store's directory unless another folder was given.
const store::Remedies& program_remedies() noexcept;

}  // namespace penstock::trainer
