// Reads weights, masters and moments out of a store or a snapshot that nobody trains in: for exports, and for what goes
// on with a part of them. Beside penstock_session.h, whose models, options, errors and structures it takes.
#ifndef PENSTOCK_READER_H
#define PENSTOCK_READER_H

#include "penstock_session.h"

#ifdef __cplusplus
extern "C" {
#endif

// Used by one thread at a time; may change hands. Memory: two tiles, while it reads.
typedef struct penstock_reader penstock_reader;

// Of the options: directories, codec, tile_elements, backend, caching and deadline_ms, as the store was made; others
// are without effect. The store is locked until the reader is closed, shared with others that only read; nothing in it
// changes. Blocks. USAGE: also a store of another model, optimizer or codec. STORAGE: there is none, it is in use by a
// training, or it is damaged. On failure *reader is NULL.
penstock_status penstock_reader_open(const penstock_model* model, const penstock_session_options* options,
                                     penstock_reader** reader, penstock_error* error);
// A value of one parameter, whole, of the newest generation: as penstock_session_read. Blocks, no longer than the
// deadline. Each tile is verified (STORAGE).
penstock_status penstock_reader_read(penstock_reader* reader, uint32_t unit, uint32_t parameter, penstock_what what,
                                     void* data, uint64_t bytes, penstock_error* error);
// Gives the store back. NULL is fine.
penstock_status penstock_reader_close(penstock_reader* reader, penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif  // PENSTOCK_READER_H
