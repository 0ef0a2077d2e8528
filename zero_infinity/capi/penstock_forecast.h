// How long the steps of a session (penstock_session.h) will take, for whoever computes them: rates of this machine are
// measured here, compute by its client, and the forecast replays over both what a session decides. It is the one that
// `penstock plan` prints.
//
//   penstock_rates rates = {.struct_bytes = sizeof rates};
//   penstock_session_measure(&model, &options, 0.4, &rates, &error);
//   for (each of options.update_order) {
//       penstock_session_forecast(&model, &options, &rates, &compute, &forecast, &error);
//       printf("%s", forecast.text);
//   }
#ifndef PENSTOCK_FORECAST_H
#define PENSTOCK_FORECAST_H

#include "penstock_session.h"

#ifdef __cplusplus
extern "C" {
#endif

// What this machine gives a session now, but for compute, which is its client's. Texts end with a 0 and are cut where
// they are longer.
typedef struct penstock_rates {
    size_t struct_bytes;  // set by the caller; stays
    // Of the devices of all directories together, in bytes per second.
    double read;                // alone
    double write;               // alone
    double both;                // at once, half of each
    double flush_seconds;       // until what was just written is durable, and a manifest behind it
    double submit_per_byte;     // seconds of the thread that moves bytes, without hashes
    double hash_per_byte;       // seconds of the same thread
    double update_per_element;  // seconds of all threads together
    double norm_per_element;    // of the gradient
    uint32_t threads;           // of the update
    uint32_t cores;             // that this process may use
    char places[1024];          // where it was measured, one per line: the nearest parent of what is not there yet
    char notes[1024];           // lines to log, as penstock_note
    char text[1024];            // in words, two or three lines
    // What compute and the devices each keep of their speed while both are at it; 0: all of it. Less where a virtual
    // machine's disk is served by the cores that it computes on.
    double contended_compute;
    double contended_device;
} penstock_rates;

// Measures for some `seconds` each (0: 0.4) reads, writes and both in the directories, an update, a norm and hashes,
// and for twelve times as long what compute and devices keep of their speed beside each other. A file without a name is
// made in each directory, of what a step writes there, 256 MiB to 1 GiB, and nothing stays; 256 MiB of memory are taken
// meanwhile. Any thread; blocks. DOES_NOT_FIT: no room for that file or that memory. STORAGE: of the devices.
penstock_status penstock_session_measure(const penstock_model* model, const penstock_session_options* options,
                                         double seconds, penstock_rates* rates, penstock_error* error);

// What compute lays aside in one visit of a pass (penstock_session_lay), and takes again before it makes later ones,
// the last of which drops it. Visits are named by their place among those of the pass.
typedef struct penstock_laid {
    uint64_t turn;   // as penstock_session_lay has it: another one each
    uint64_t bytes;  // above 0
    size_t laid_in;
    const size_t* taken_in;  // each later than the one before
    size_t taken_count;      // 1 or more
} penstock_laid;

// What compute does in a step, as its client measured it on this machine.
typedef struct penstock_compute {
    size_t struct_bytes;           // sizeof(penstock_compute)
    const penstock_visit* visits;  // of one training pass, in their order; NULL: those of the model
    size_t visit_count;            // of seconds, too; 0: how long compute takes is not known
    const double* seconds;         // by visit: of compute from it to the next one, while nothing else runs; 0 or more
    size_t forward_count;          // of the visits the first so many are forward, the others backward
    uint64_t passes;               // before one update, all alike; 0: 1
    double rest_seconds;           // of a step, outside of its passes
    uint64_t tokens;               // of a step; 0: not known
    double endurance_bytes;        // that the devices together are rated to have written; 0: not known
    const penstock_laid* laid;     // of one pass, as it is laid aside under options.activation_budget_bytes
    size_t laid_count;
} penstock_compute;

// What a step's time is made of.
typedef enum penstock_bottleneck {
    PENSTOCK_BOUND_BY_NVME = 0,
    PENSTOCK_BOUND_BY_PROCESSOR = 1,
    PENSTOCK_BOUND_BY_BOTH = 2,  // about equally
    PENSTOCK_BOUND_BY_ORDER = 3  // of updates: clearly longer than either, which wait for each other
} penstock_bottleneck;

// A step among its like, a mean over the steps of one commit. Seconds and bytes.
typedef struct penstock_forecast {
    size_t struct_bytes;  // set by the caller; stays
    // Known without compute, too: what the NVMe and the update take by themselves.
    double nvme_seconds;    // that the bytes take at least
    double update_seconds;  // of the processor
    double read_bytes;
    double write_bytes;
    // All that follows is 0 where compute is not known. The step, and its parts.
    double seconds;
    double forward_seconds;
    double backward_seconds;
    double after_seconds;  // in updates: of the processor, and waiting for states
    double commit_seconds;
    double wait_weights_seconds;  // in all these
    double wait_states_seconds;
    // What each lane is busy for.
    double compute_seconds;
    double reading_seconds;
    double writing_seconds;
    double driver_seconds;     // of the thread that hashes and submits
    double processor_seconds;  // of compute, updates and, where it has no core of its own, that thread
    penstock_bottleneck bottleneck;
    double hiding_compute;         // so many times this compute takes as long as the NVMe
    double tokens_that_hide_nvme;  // per step; 0: tokens are not known, or it always does
    double written_bytes_per_day;  // at this pace
    double days_to_endurance;      // 0: it is not known
    char text[2048];               // in words, four lines
    double wait_spills_seconds;    // for gradients and what was laid aside, or for their memory
} penstock_forecast;

// How long a step will take: what the session and its thread would decide with these options (update_order is one of
// them), replayed over these rates. Pure: nothing is measured, opened or kept. Any thread, at any time. USAGE, also of
// seconds, rates or visits that cannot be; DOES_NOT_FIT: as penstock_session_plan, and units that are visited at once,
// or what is laid aside, that find no room; of a device with memory of its own times are not forecast: USAGE. On
// failure *forecast is as it was.
penstock_status penstock_session_forecast(const penstock_model* model, const penstock_session_options* options,
                                          const penstock_rates* rates, const penstock_compute* compute,
                                          penstock_forecast* forecast, penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif  // PENSTOCK_FORECAST_H
