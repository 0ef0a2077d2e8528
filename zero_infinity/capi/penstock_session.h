// Penstock's open step for C programs, and for whatever can call C (the Python package does): a model in training whose
// weights, gradients and optimizer states are kept by a store on NVMe and in host memory. The model is units, names,
// shapes and bytes; whoever computes it says when weights are needed, adds gradients, and asks for the update.
//
//   penstock_session* session;
//   if (penstock_session_open(&model, &options, &session, &error) != PENSTOCK_OK) exit(puts(error.message));
//   for (uint64_t number = 1; number <= steps; ++number) {
//       penstock_session_begin_pass(session, PENSTOCK_TRAINING, &error);
//       for (...) {                                                       // forward and backward, or whatever comes
//           penstock_session_visit(session, &unit, 1, NULL, 0, &memory, &error);        // blocks until it may be read
//           ... compute reads memory.trainable and memory.frozen, and in backward
//           penstock_session_open_gradient(session, unit, parameter, &sum, &error);      // writes or adds to sum.data
//       }
//       penstock_session_end_pass(session, &error);
//       step.step = number;
//       penstock_session_update(session, &step, &report, &error);          // clips, updates, commits
//   }
//   penstock_session_close(session, &error);
//
// A pass is any sequence of visits: a unit may be visited any number of times and in any order; several passes may come
// before one update, and their gradients add up; a pass may end early. The order of the last pass of a kind is what the
// next one is prefetched by. The arithmetic of the optimizers, and what a step that was reported as committed survives,
// is that of the C++ session (zero_infinity/session/core_session.h, zero_infinity/optimizer/optimizers.h).
//
// Threads. A session is used by one thread at a time; it may change hands. A call beside another one is PENSTOCK_BUSY.
// A child that is forked has the memory, but nobody who serves it: every call but closing is PENSTOCK_USAGE there.
// Opening, ending and closing, update, settle, complete, the norm, read, write, visit, lay, take and calls on snapshots
// may block, and so do calls on gradients that are on NVMe, or of several ranks; all others return at once. A device
// has the deadline.
//
// Ownership, sizes and errors are as in penstock.h: what is passed in is copied before the call returns; structures
// with struct_bytes may grow at their end, and so may those that stand in arrays, whose size penstock_model says; a
// refused call has changed nothing. After PENSTOCK_STORAGE, PENSTOCK_NON_FINITE from an update that had begun, or
// PENSTOCK_INTERNAL, every call but penstock_session_end and _close is PENSTOCK_POISONED: what was committed is in the
// store, and another session goes on from it.
#ifndef PENSTOCK_SESSION_H
#define PENSTOCK_SESSION_H

#include "penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

// Raised with every change that a compiled program would notice.
#define PENSTOCK_SESSION_ABI_VERSION 1
uint32_t penstock_session_abi_version(void);  // of the library that is loaded
const char* penstock_session_loops(void);     // that this processor is given: "avx512", "avx2", "baseline"; static

// ---------------------------------------------------------------- the model

// What an element is. DEFAULT: as the codec stores weights.
typedef enum penstock_type {
    PENSTOCK_TYPE_DEFAULT = 0,
    PENSTOCK_BF16 = 1,
    PENSTOCK_FP16 = 2,
    PENSTOCK_FP32 = 3,
    PENSTOCK_U8 = 4  // of frozen parameters: bytes that mean what they like
} penstock_type;

// What it means that no gradient comes to a trainable parameter before an update.
typedef enum penstock_unused {
    PENSTOCK_UNUSED_REFUSED = 0,  // a mistake: the update is PENSTOCK_USAGE and names it
    PENSTOCK_UNUSED_ALLOWED = 1,  // its gradient is zero; moments and weight decay go on
    PENSTOCK_UNUSED_SKIPPED = 2   // it stays as it is, and its own count of steps stands still: as torch.optim
} penstock_unused;

typedef struct penstock_parameter {
    const char* name;  // unique in its unit
    const int64_t* shape;
    size_t dimensions;  // 0: a scalar
    int frozen;         // not 0: no gradient, no state, never updated
    penstock_unused unused;
    uint32_t group;  // whose values update it, an index into penstock_model.groups; of trainable ones
} penstock_parameter;

typedef struct penstock_parameter_id {
    uint32_t unit;
    uint32_t parameter;
} penstock_parameter_id;

// What is gathered and released as a whole: a layer, an embedding.
typedef struct penstock_unit {
    const char* name;  // unique in its model
    const penstock_parameter* parameters;
    size_t parameter_count;
    const penstock_parameter_id* borrowed;  // parameters of units before it that it reads, too, each with a gradient of
    size_t borrowed_count;                  // its own that is added to the owner's; counted behind its own parameters
    penstock_type frozen_type;              // of its frozen parameters
    int resident;                           // not 0: its weights stay in host memory, at one address
} penstock_unit;

typedef enum penstock_optimizer {
    PENSTOCK_ADAMW = 0,
    PENSTOCK_ADAM = 1,
    PENSTOCK_SGD = 2,
    PENSTOCK_ADAGRAD = 3,
    PENSTOCK_LION = 4
} penstock_optimizer;

// What a group of parameters is updated by in a step; each optimizer reads what it knows. In a model: as the first step
// is likely to be. Which moments there are (SGD: a momentum or none) is the same in every group and step.
typedef struct penstock_group {
    double learning_rate;
    double weight_decay;
    double beta1, beta2;         // AdamW, Adam, Lion
    double epsilon;              // AdamW, Adam, Adagrad; > 0
    double momentum, dampening;  // SGD
    int nesterov;                // SGD
    double lr_decay;             // Adagrad
    double initial_accumulator;  // Adagrad, of a new store
} penstock_group;

// The units whose weights compute reads at the same time.
typedef struct penstock_visit {
    const uint32_t* units;
    size_t unit_count;
} penstock_visit;

typedef enum penstock_pass { PENSTOCK_TRAINING = 0, PENSTOCK_INFERENCE = 1 } penstock_pass;

typedef struct penstock_model {
    size_t struct_bytes;         // sizeof(penstock_model)
    const penstock_unit* units;  // in the order in which their gradients are summed and their tiles updated
    size_t unit_count;
    size_t unit_struct_bytes;       // sizeof(penstock_unit)
    size_t parameter_struct_bytes;  // sizeof(penstock_parameter)
    penstock_optimizer optimizer;
    const penstock_group* groups;  // at least one
    size_t group_count;
    size_t group_struct_bytes;  // sizeof(penstock_group)
    // What passes visit, as far as it is known: memory is planned for them. None: each unit once, in training then
    // again in reverse order.
    const penstock_visit* training;
    size_t training_count;
    const penstock_visit* inference;
    size_t inference_count;
} penstock_model;

// ---------------------------------------------------------------- open and close

typedef enum penstock_tier { PENSTOCK_NVME = 0, PENSTOCK_HOST = 1 } penstock_tier;
// Where gradients are between their uses.
typedef enum penstock_gradients {
    PENSTOCK_GRADIENTS_HOST = 0,
    // Host memory has those of two units; what a call needs of others is read, which blocks. They have no address
    // (penstock_session_gradient). Each is written and read once in a step of one pass; what is updated WITHIN is
    // neither, but where steps may be clipped or deferred: then it is written, and read only to update again.
    PENSTOCK_GRADIENTS_NVME = 1,
    PENSTOCK_GRADIENTS_AUTO = 2,  // on NVMe where host memory has no room for all of them
} penstock_gradients;
typedef enum penstock_device { PENSTOCK_CPU = 0, PENSTOCK_EMULATED = 1, PENSTOCK_CUDA = 2 } penstock_device;

// When a step's units are updated; the bits are the same.
typedef enum penstock_update_order {
    PENSTOCK_AFTER_BACKWARD = 0,  // all by penstock_session_update
    // Each at the visit that first needs it, while the states of the next ones are read: the step is committed when the
    // last of them was updated, which a call between passes that needs it makes sure of first (the norm, an update,
    // settle, read, write, a snapshot). A kill costs a finished step more. What fails there is told there.
    PENSTOCK_DEFERRED = 1,
    // Each as soon as its gradients are there, by penstock_session_complete. Where options.clips, as if nothing were
    // clipped: what the norm then says otherwise is updated again from what was committed before, as with DEFERRED, and
    // so is a step that is not begun. Units of run.deferred_share (settings) are as with DEFERRED.
    PENSTOCK_WITHIN = 2,
    PENSTOCK_IN_BACKWARD = 2,  // an older word for it
    PENSTOCK_SPECULATIVE = 3,  // likewise, with clips
    PENSTOCK_BALANCED = 4,     // likewise, with run.deferred_share "auto", and with clips where these may be
} penstock_update_order;

// What is committed with a step: text or bytes of the client's, found again when the store is opened.
typedef struct penstock_value {
    const char* key;
    const void* data;
    size_t bytes;
} penstock_value;

// Zero in a member is its default.
typedef struct penstock_session_options {
    size_t struct_bytes;             // sizeof(penstock_session_options)
    const char* const* directories;  // one per device, 1 to 64; the first also holds the manifests
    size_t directory_count;
    const char* job;  // who owns the store
    // A snapshot to go on from. A store that went on from it before goes on from its own newest generation, unless
    // go_back is not 0.
    const char* resume_from;
    int go_back;
    // Memory.
    uint64_t host_budget_bytes;  // hard limit of the pool, of all ranks of a machine; 0: what prefetch_depth asks for
    uint32_t prefetch_depth;     // visits ahead; 0: 2
    uint32_t staging_tiles;      // 0: 4
    uint64_t tile_elements;      // a multiple of 4096, part of the store; 0: 2^20
    penstock_tier weights;       // where they are kept between uses
    penstock_tier states;
    penstock_device device;
    int device_index;
    uint64_t device_budget_bytes;  // limit of the device's own memory; 0: of CUDA half of what is free
    // Safety.
    uint64_t commit_steps;  // a commit after every so many steps; 0: 1
    int scratch;            // not 0: nothing is ever committed
    penstock_verify verify;
    int snapshots;  // not 0: memory is planned for penstock_session_begin_snapshot
    // Arithmetic.
    const char* codec;            // NULL: "split"; "plain_fp32", "plain_bf16", "plain_fp16", "compact"
    penstock_type gradient_type;  // of sums, BF16 or FP32; DEFAULT: BF16
    uint32_t threads;             // of the update; 0: 1
    penstock_backend backend;
    penstock_caching caching;
    uint64_t deadline_ms;  // 0: 120 s
    // Of a new store: committed as generation 0.
    const penstock_value* values;
    size_t value_count;
    // Gives elements [first, first + count) of a parameter of a new store, in fp32; each once, unit by unit. Anything
    // but PENSTOCK_OK ends the opening with that status and with the message, if it sets one.
    penstock_status (*first_weights)(uint32_t unit, uint32_t parameter, uint64_t first, uint64_t count, float* values,
                                     penstock_error* error, void* user);
    // While a new store is written, or the one that is there is verified. NULL: not called.
    void (*progress)(const char* what, uint64_t done_bytes, uint64_t total_bytes, void* user);
    void* user;
    penstock_update_order update_order;
    penstock_gradients gradients;
    // Of the host budget, for penstock_session_lay: what has no room there goes to NVMe. 0: nothing can be laid aside.
    uint64_t activation_budget_bytes;
    // Not 0: what host_budget_bytes leaves, as far as the machine has it, keeps units' weights in host memory, then
    // tiles of their states; each saves its reads. Chosen at each opening. Not WITHIN with clips, nor without a budget.
    int fill_host_budget;
    // A file for the picture of some steps, as Chrome's JSON (ui.perfetto.dev), written when the session ends, also
    // after an error. NULL: none. Which steps, counted from the opening, from 1; a step is what leads to an update. 0:
    // the third, and three of them. Takes 25 MB beside the pool.
    const char* trace;
    uint64_t trace_first_step;
    uint64_t trace_steps;
    // Not 0: for forwards alone, of a model with nothing to train, or of one that was trained. Passes of both kinds and
    // reads of weights; what wants a gradient, an update or a write is PENSTOCK_USAGE. Directories without a store get
    // one of the model's weights, in one slot, committed once: say that all parameters are frozen. One that is there,
    // of a training or a snapshot, is opened as the model that it was made for (penstock_look.h), and only read, beside
    // other sessions of this kind; one that a training is under way in is refused. Options of updates are without
    // effect; resume_from and activation_budget_bytes are refused.
    int forwards;
    int clips;  // not 0: steps may be clipped; WITHIN then wants commit_steps 1, weights and states on NVMe
    // As JSON, by the keys of a session in docs/reference-keys.md; goes before the members. NULL: nothing.
    const char* settings;  // {"run.update_order": "within", "run.deferred_share": 0.2}
    // The other processes that train the model (penstock_ranks.h), which make the same calls; called until the session
    // has ended. Each rank's store lies in DIR/ranks-N/R. NULL: there are none.
    const struct penstock_ranks* ranks;
} penstock_session_options;

typedef struct penstock_session penstock_session;

// Checks the budget, locks the directories; then goes on from the newest committed generation, or writes the first
// weights into a new store and commits generation 0. Blocks. USAGE: also a store of another model, optimizer or codec.
// DOES_NOT_FIT: with a table of what takes how much and the lightest options that fit. On failure *session is NULL.
penstock_status penstock_session_open(const penstock_model* model, const penstock_session_options* options,
                                      penstock_session** session, penstock_error* error);
// Gives the store and its directories back: another session may open them. What was updated and not committed is gone:
// settle before. STORAGE: only the trace could not be written. Memory that was handed out stays where it is; only
// penstock_session_close may follow.
penstock_status penstock_session_end(penstock_session* session, penstock_error* error);
// Ends it and gives its memory back. NULL is fine. Where a device is stuck, memory is kept until the process ends.
penstock_status penstock_session_close(penstock_session* session, penstock_error* error);

typedef struct penstock_session_info {
    size_t struct_bytes;       // set by the caller; stays
    int resumed;               // not 0: it goes on from what was committed before
    uint32_t prefetch_depth;   // what the budget allowed
    uint64_t pool_bytes;       // the pool's hard limit
    const char* memory_table;  // one line per use; the session's
    const char* io;            // "io_uring, direct"; the session's
    double planned_bytes;      // NVMe traffic of a step of one of the expected passes
    // Counted since the opening:
    uint64_t read_bytes;
    uint64_t write_bytes;
    uint64_t pool_peak_bytes;
    uint64_t waited_ns;  // compute for weights, the update for tiles, for the last writes of a commit
    uint64_t visits;
    uint64_t expected_visits;  // were the next ones
    uint64_t device_bytes;     // of the device's own memory that the session takes
    uint64_t laid_bytes;       // by penstock_session_lay
    uint64_t laid_away_bytes;  // that went to NVMe, in multiples of 4096
    uint64_t gathered_bytes;   // of weights that came from other ranks
    uint64_t exchanged_bytes;  // of gradients that did
    uint64_t waited_for_ranks_ns;
} penstock_session_info;

penstock_status penstock_session_get_info(const penstock_session* session, penstock_session_info* info,
                                          penstock_error* error);
// Lines to log, as penstock_note.
const char* penstock_session_note(penstock_session* session, size_t index);
// What the generation that the session went on from was committed with (generation 0: penstock_session_options.values);
// NOT_FOUND past the last. The session's, until it is closed.
penstock_status penstock_session_value_at(const penstock_session* session, size_t index, penstock_value* value,
                                          penstock_error* error);

// A part of the pool: what takes it, and how much.
typedef struct penstock_plan_use {
    char name[32];  // "weights", "gradients", "staging", ...
    uint64_t bytes;
} penstock_plan_use;

// What a session is going to take. Bytes (how long its steps take: penstock_forecast.h); texts end with a 0.
typedef struct penstock_plan {
    size_t struct_bytes;      // set by the caller; stays
    uint64_t pool_bytes;      // of host memory, pinned: penstock_session_info.pool_bytes
    uint64_t device_bytes;    // of the device's own memory: penstock_session_info.device_bytes
    uint64_t store_bytes;     // in the directories, of a new store; more where a drive asks for more than 4096 aligned
    uint32_t prefetch_depth;  // what the budgets allow
    uint32_t use_count;
    penstock_plan_use uses[16];  // what the pool is divided into
    // NVMe traffic of a step of one of the expected passes; what each further one adds is at the end.
    uint64_t read_bytes;
    uint64_t write_bytes;
    uint64_t resident_write_bytes;  // on top in a step that commits: what host memory holds
    double planned_bytes;           // a mean over the steps of one commit: penstock_session_info.planned_bytes
    // Elements of the model.
    uint64_t parameters;
    uint64_t trainable_parameters;
    char memory_table[2048];  // one line per use and the limit: penstock_session_info.memory_table
    // What this process may still take of host memory, before the pool: free RAM, or less under a cgroup's limit.
    uint64_t available_bytes;
    // On top, for each pass of a step beyond the first.
    uint64_t further_read_bytes;
    uint64_t further_write_bytes;
} penstock_plan;

// What penstock_session_open would take, decided by the same plan; nothing is opened, made or kept, and values, first
// weights and what is in the directories are not looked at. Any thread, at any time. USAGE: as opening is.
// DOES_NOT_FIT: with a table of what takes how much and the lightest options that fit, also where this machine has less
// memory left now; room in the directories is looked at by opening. On failure *plan is as it was.
penstock_status penstock_session_plan(const penstock_model* model, const penstock_session_options* options,
                                      penstock_plan* plan, penstock_error* error);

// Where a parameter lies in the memory of its unit; never changes.
typedef struct penstock_place {
    size_t struct_bytes;  // set by the caller; stays
    uint64_t offset_bytes;
    uint64_t numel;
    penstock_type type;
    int frozen;  // not 0: in penstock_unit_memory.frozen
} penstock_place;
penstock_status penstock_session_place(const penstock_session* session, uint32_t unit, uint32_t parameter,
                                       penstock_place* place, penstock_error* error);

// ---------------------------------------------------------------- passes

// Memory that compute reads, of the device where that has its own. Good until a visit that does not hold the unit, for
// what is issued until then.
typedef struct penstock_unit_memory {
    void* trainable;  // NULL where the unit has none
    void* frozen;
} penstock_unit_memory;

// Replaces what was learned from the last pass of that kind; within such a pass, what it makes from here on.
penstock_status penstock_session_expect(penstock_session* session, penstock_pass pass, const penstock_visit* visits,
                                        size_t visit_count, penstock_error* error);
// Ends the pass that is under way. What it is expected to visit first is fetched from now on.
penstock_status penstock_session_begin_pass(penstock_session* session, penstock_pass pass, penstock_error* error);
// Of CUDA: compute is issued on this stream (a cudaStream_t) from now on, after what was issued on the one before;
// until the first call on the default one. A visit returns when what is issued then finds the weights; nothing waits on
// the host for what compute has under way.
penstock_status penstock_session_compute_on(penstock_session* session, void* stream, penstock_error* error);
// Compute goes to these units: blocks until it may read them. Those of `held`, which the last visit had, too, and which
// are among `units`, stay where they are. `memory` has room for unit_count, or is NULL. DOES_NOT_FIT: there is no room
// for them all at once; nothing has changed.
penstock_status penstock_session_visit(penstock_session* session, const uint32_t* units, size_t unit_count,
                                       const uint32_t* held, size_t held_count, penstock_unit_memory* memory,
                                       penstock_error* error);
penstock_status penstock_session_end_pass(penstock_session* session, penstock_error* error);
// Of a resident unit: at any time, always the same.
penstock_status penstock_session_resident(const penstock_session* session, uint32_t unit, penstock_unit_memory* memory,
                                          penstock_error* error);

// ---------------------------------------------------------------- gradients

// Summed over passes until the update, in the session's gradient_type; within a pass or between.
typedef struct penstock_gradient {
    size_t struct_bytes;  // set by the caller; stays
    void* data;
    uint64_t numel;
    penstock_type type;
    int fresh;  // not 0: it holds nothing yet and is to be written whole; it counts as there from now on
} penstock_gradient;

// To be added to by compute, in the memory that it reads, until a gradient of another unit is opened. Trainable
// parameters only, borrowed ones too.
penstock_status penstock_session_open_gradient(penstock_session* session, uint32_t unit, uint32_t parameter,
                                               penstock_gradient* gradient, penstock_error* error);
// The sum in host memory, always at the same address, when what the device has of it has come; may be changed in place
// between passes. NOT_FOUND: no addend has come. USAGE: gradients are on NVMe. Of several ranks the mean over them: all
// make the first call behind a training pass at once; their changes count, each rank's in its shard.
penstock_status penstock_session_gradient(penstock_session* session, uint32_t unit, uint32_t parameter,
                                          penstock_gradient* gradient, penstock_error* error);
// The same, but zeros, which count as there, where no addend has come.
penstock_status penstock_session_make_gradient(penstock_session* session, uint32_t unit, uint32_t parameter,
                                               penstock_gradient* gradient, penstock_error* error);
penstock_status penstock_session_clear_gradient(penstock_session* session, uint32_t unit, uint32_t parameter,
                                                penstock_error* error);
penstock_status penstock_session_clear_gradients(penstock_session* session, penstock_error* error);
// Of the sums as they are. REQUIRES (else USAGE): no pass.
penstock_status penstock_session_gradient_norm(penstock_session* session, double* norm, penstock_error* error);

// ---------------------------------------------------------------- activations

// What is laid aside in one half of a step and taken again in the other: units' inputs, between forward and backward.
// Within a pass or between. DOES_NOT_FIT: no room for one thing; nothing has changed. STORAGE ends the session.
//
// *data: memory of so many bytes, above 0, at a multiple of 4096, to be filled before the next of these calls. `turn`:
// in which it is taken, lower ones first, one thing each; nothing else is laid aside for it. What is taken last goes to
// NVMe first: the least that can be moved, but for room for two more, if all is taken in that order.
penstock_status penstock_session_lay(penstock_session* session, uint64_t turn, uint64_t bytes, void** data,
                                     penstock_error* error);
// *data: what was laid aside, until the next of these calls; it stays laid aside until it is dropped. Blocks until it
// is there; what is taken next comes meanwhile. REQUIRES (else USAGE), as the next one: something is laid aside for the
// turn.
penstock_status penstock_session_take(penstock_session* session, uint64_t turn, void** data, penstock_error* error);
penstock_status penstock_session_drop(penstock_session* session, uint64_t turn, penstock_error* error);

// ---------------------------------------------------------------- steps

typedef struct penstock_step {
    size_t struct_bytes;           // sizeof(penstock_step)
    uint64_t step;                 // from 1
    const penstock_group* groups;  // one for each of the model's, in their order
    size_t group_count;
    size_t group_struct_bytes;
    double clip;                   // largest global norm of the gradient; 0: none
    double loss_scale;             // the sums are this times the gradient; 0: 1
    int may_skip;                  // not 0: a gradient that is not finite ends in a report, and clears the gradients
    const penstock_value* values;  // committed with this step; keys do not begin with "penstock."
    size_t value_count;
} penstock_step;

typedef struct penstock_step_report {
    size_t struct_bytes;   // set by the caller; stays
    double gradient_norm;  // of the gradient, before clipping
    int updated;           // 0: it was not finite and may_skip
    int committed;         // not 0: durable now
    uint64_t update_ns;
    uint64_t commit_ns;
    int committed_before;  // not 0: the step before it is durable
    int updated_again;     // not 0: it was begun, and was clipped after all
} penstock_step_report;

// WITHIN, before the training pass that brings a step's last gradients, or within it: units may be updated within it
// (*begun is 1), or not (*begun is 0): nothing has happened then, update() does it all. Not of a step that may be
// skipped, nor of one that clips: without options.clips, at first, after two in a row that were clipped, and behind one
// that is not going to be committed. Units that the step before has deferred are updated before, by visits of that
// pass. Gradients of passes before count. Up to update() with this same step there is no settle, read, write and
// snapshot; once a unit is complete, no other pass, and nothing is cleared. A session that is closed has lost it all.
penstock_status penstock_session_begin_step(penstock_session* session, const penstock_step* step, int* begun,
                                            penstock_error* error);
// Within that pass: no gradient comes to this unit's parameters any more, also of who borrows them, and compute reads
// them no more in it. It is updated now, once its states are there and a step deferred before is committed; weights in
// host memory, beside a device's own, while compute goes on: a later call returns what fails then. Others are updated
// by update(). PENSTOCK_USAGE (a missing gradient) and PENSTOCK_NON_FINITE end the session: units before are updated;
// what was committed stays. REQUIRES (else USAGE): the last visit has it, or it is resident; then nothing happens.
penstock_status penstock_session_complete(penstock_session* session, uint32_t unit, penstock_error* error);

// One step: unscales, clips, updates, clears the gradients, and commits where that is due, all as
// penstock_session_options.update_order says. PENSTOCK_USAGE: names parameters that no gradient came to.
// PENSTOCK_NON_FINITE: the gradient, and nothing has changed; or a new value. Of a step that was begun both end the
// session.
penstock_status penstock_session_update(penstock_session* session, const penstock_step* step,
                                        penstock_step_report* report, penstock_error* error);
// Commits the newest step, and what was written, where that is not done.
penstock_status penstock_session_settle(penstock_session* session, penstock_error* error);

typedef enum penstock_what {
    PENSTOCK_WEIGHT = 0,  // as compute reads it
    PENSTOCK_MASTER = 1,  // fp32, as are
    PENSTOCK_MOMENT0 = 2,
    PENSTOCK_MOMENT1 = 3
} penstock_what;

// A value of one parameter, whole. Read: the newest step, which is committed first, in the type of penstock_place, or
// in fp32. Written: from fp32 (bytes as 0 ... 255), with weight and master being the same; durable with the next
// commit. `bytes` is that of all elements. REQUIRES (else USAGE): no pass; frozen ones have a weight only.
penstock_status penstock_session_read(penstock_session* session, uint32_t unit, uint32_t parameter, penstock_what what,
                                      void* data, uint64_t bytes, penstock_error* error);
penstock_status penstock_session_write(penstock_session* session, uint32_t unit, uint32_t parameter, penstock_what what,
                                       const float* data, uint64_t bytes, penstock_error* error);

// ---------------------------------------------------------------- snapshots

// Begins to copy the newest step, which is committed first, into the new directory, and returns while the copy goes on.
penstock_status penstock_session_begin_snapshot(penstock_session* session, const char* path, penstock_error* error);
typedef struct penstock_snapshot_progress {
    size_t struct_bytes;  // set by the caller; stays
    int under_way;
    uint64_t done_bytes;
    uint64_t total_bytes;
} penstock_snapshot_progress;
penstock_status penstock_session_snapshot_progress(const penstock_session* session,
                                                   penstock_snapshot_progress* progress, penstock_error* error);
// Blocks until no copy is under way. Not OK: what became of one that failed; training may go on.
penstock_status penstock_session_finish_snapshot(penstock_session* session, penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif  // PENSTOCK_SESSION_H
