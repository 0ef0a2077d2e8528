// Reads a model out of a store or a snapshot that nobody trains in: without a session, its pool and its threads.
#pragma once

#include "swap/store/open_store.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/plan/core_options.h"
#include "zero_infinity/plan/model_spec.h"
#include "zero_infinity/weights/read_out.h"

namespace penstock::zero {

// Used by one thread, which blocks. Holds the store locked, shared with other readers, while it lives; takes memory for
// two tiles while it reads.
class ModelReader {
   public:
    // Of the options: where the store lies, its codec and tile_numel, and how I/O is done. Throws Error: usage (a store
    // of another model, codec or optimizer), storage (no store, in use by a training, damaged).
    ModelReader(const ModelSpec& model, const CoreOptions& options);

    const ModelLayout& layout() const noexcept { return layout_; }
    // Of the newest generation; each tile is verified. Throws as zero::read_out().
    void read_out(const ReadOut& what, WeightSink& sink);

   private:
    ModelLayout layout_;
    store::OpenStore open_;
};

}  // namespace penstock::zero
