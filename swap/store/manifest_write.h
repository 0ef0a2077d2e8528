// One copy of a manifest, written outside of a commit.
#pragma once

#include "aio/io.h"
#include "swap/directory/store_files.h"
#include "swap/format/manifest.h"

#include <cstdint>

namespace penstock::store {

// Writes copy 0 or 1 of `manifest` into the file of its generation, durably. REQUIRES: the other copy there is whole,
// so that a cut within the write costs nothing. Polls the Io. Throws Error (storage): the write failed, or the device
// is stuck; then the files stay open for ever.
void write_manifest_copy(aio::Io& io, StoreFiles& files, const Manifest& manifest, std::uint32_t copy);

}  // namespace penstock::store
