// Manifests as a forger would make them: any fields, under a hash that is right.
#pragma once

#include "swap/format/manifest.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock::fuzz {

// These know how a store's geometry is given, and so do a line each of encoded() and of the seeds in
// manifest_target.cpp.
store::Layout layout_of(const store::Manifest& manifest);
store::Manifest forged_manifest(std::vector<store::ObjectSpec> objects, std::uint32_t device_count,
                                std::uint64_t granule_bytes);

// The encoded manifest. REQUIRES: its lengths fit their fields.
Bytes encoded(const store::Manifest& manifest);
// The bytes with length and hash set right, by the words of swap/FORMAT.md and not by the code under test.
void fix_hash(Bytes& bytes);

// Changes fields, or bytes, and mostly sets the hash right.
void mutate_manifest(Bytes& bytes, Random& random, const RawMutation& raw);

std::vector<store::Manifest> seed_manifests();

}  // namespace penstock::fuzz
