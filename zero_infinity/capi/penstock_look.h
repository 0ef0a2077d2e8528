// What a directory holds, whether options go together, and what several ranks take, seen without opening: beside
// penstock_session.h, whose rules for errors and structures are kept here.
#ifndef PENSTOCK_LOOK_H
#define PENSTOCK_LOOK_H

#include "penstock_session.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a directory holds: of a store over several the first one.
typedef enum penstock_content {
    PENSTOCK_CONTENT_NOTHING = 0,   // no store, or one whose first commit never came
    PENSTOCK_CONTENT_STORE = 1,     // one that goes on from commit to commit
    PENSTOCK_CONTENT_SNAPSHOT = 2,  // one that was committed once and is only read: a snapshot, or weights alone
} penstock_content;

typedef struct penstock_look {
    size_t struct_bytes;  // set by the caller; stays
    penstock_content content;
    uint64_t generation;  // the newest whole one; 0 also where there is none
    int in_use;           // not 0: a process of this machine has it open to write
} penstock_look;

// Looks without locking: what is said may be other by now where it is in use. `value` is called with each value of the
// newest generation; NULL: it is not. Any thread, at any time. STORAGE: what is there cannot be read, or no generation
// is whole.
penstock_status penstock_session_look(const char* directory, penstock_look* look,
                                      void (*value)(const penstock_value* value, void* user), void* user,
                                      penstock_error* error);

// Whether the options of updates go together, as opening and a plan ask first: USAGE, with what they need. Any thread.
penstock_status penstock_session_check(const penstock_session_options* options, penstock_error* error);

// What each of several ranks takes beside its penstock_plan: they are alike, so all of them take as many times as much.
// Bytes over the wire are those that come from others, padding included; as many go to them.
typedef struct penstock_ranks_plan {
    size_t struct_bytes;  // set by the caller; stays
    uint32_t ranks;
    uint32_t ranks_of_node;         // the most on one machine
    uint64_t gathered_bytes;        // of weights, in a step: penstock_session_info.gathered_bytes
    uint64_t exchanged_bytes;       // of gradients, in a step: penstock_session_info.exchanged_bytes
    uint64_t first_gathered_bytes;  // of weights, while a session opens
    double zero_bytes[4];           // what ZeRO's authors count of a rank's device, by stage: 16 bits, K = 12
    char text[3072];                // all of it in words, by rank, machine and run
} penstock_ranks_plan;

// As penstock_session_plan, of each of `ranks`, of which so many are on one machine (0: all) that is as this one; steps
// have `passes` passes. options.ranks is not looked at. Any thread. DOES_NOT_FIT: also those of one machine together,
// with a table. On failure nothing is changed.
penstock_status penstock_session_plan_ranks(const penstock_model* model, const penstock_session_options* options,
                                            uint32_t ranks, uint32_t ranks_of_node, uint64_t passes,
                                            penstock_plan* plan, penstock_ranks_plan* of_ranks, penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif  // PENSTOCK_LOOK_H
