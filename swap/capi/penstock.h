// Penstock's tensor store for C programs (C99 and later): named objects of bytes on NVMe that survive kills and power
// cuts. An object is cut into tiles; a tile is what is moved, hashed and rewritten as one. What was written becomes
// durable, all at once, as the next generation: a commit. A crash at any instant leaves the last one whole.
//
//   penstock_store_options options = {.struct_bytes = sizeof options, .job = "my job", ...};
//   penstock_store* store;
//   penstock_error error;
//   if (penstock_store_open(&options, &store, &error) != PENSTOCK_OK) { puts(error.message); exit(error.status); }
//   penstock_write(store, range, memory, PENSTOCK_URGENCY_DEFAULT, user, &error);     // begins
//   penstock_result result = {.struct_bytes = sizeof result};                          // and ends here, or later:
//   while (penstock_next(store, -1, &result, &error) == PENSTOCK_OK) { ... result.user, result.status ... }
//   penstock_commit(store, NULL, &error);                                              // ends there too
//
// examples/tensors.c is a whole program. Neither torch nor CUDA is needed.
//
// Operations. penstock_read, penstock_write and penstock_commit begin an operation and return; its end is a result that
// penstock_next hands out, in the order in which operations end. Exactly one result per operation that was begun, none
// for one that was refused. There are no callbacks. Operations advance while the program is within a call on the store:
// call penstock_next now and then, or when penstock_event_fd is readable. What has begun cannot be cancelled: direct
// I/O in flight has no way back, so memory is the store's until the result.
//
// Threads. A store and all that belongs to it is used by one thread at a time; it may change hands. Stores are
// independent of each other. A pool and its leases are for any thread, one thread at a time per lease. A store starts
// no thread of its own, but for the backend PENSTOCK_BACKEND_THREADS.
//
// Ownership. Handles are the caller's to close, release or destroy, once. Text and structures that are passed in are
// copied before the call returns. Text that is handed out is the store's; each place says for how long.
//
// Sizes. A structure that may grow begins with struct_bytes: set it to the structure's sizeof, as compiled. Members are
// only ever added at the end, and the library neither reads nor writes behind struct_bytes. So a program that was
// compiled with an earlier penstock.h of this PENSTOCK_ABI_VERSION works with a later library: members that it does not
// have are taken for zero, their default, and are not written. One that was compiled with a later penstock.h works with
// an earlier library as long as the members that it knows and the library does not are zero (PENSTOCK_USAGE otherwise);
// the library leaves them as they are. Objects stand in an array, so their sizeof is said once, beside their count.
// Zero or too few bytes are PENSTOCK_USAGE, and nothing is written. penstock_error, penstock_memory and penstock_range
// have no such member and never change.
//
// Errors. Every call that can fail returns a penstock_status and, where `error` is not NULL, writes the reason there
// (on PENSTOCK_OK: an empty message). A refused call has changed nothing, except that penstock_store_open may have made
// directories and marked them as its job's. No C++ exception leaves the library. A wrong argument (NULL, a tile that is
// not there, memory too short or not aligned, ...) is PENSTOCK_USAGE; PENSTOCK_BUSY means that something in flight must
// end first. What the library cannot see ends badly, as always in C: a handle that was closed, memory that is not
// there, two threads at once.
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Raised with every change that a compiled program would notice; the shared library's SOVERSION.
#define PENSTOCK_ABI_VERSION 1

// Of the library that is loaded.
uint32_t penstock_abi_version(void);
const char* penstock_version(void);  // "0.1.0"; static

// ---------------------------------------------------------------- errors

// Below 16: the exit codes of the program `penstock`, good for a program's own exit.
typedef enum penstock_status {
    PENSTOCK_OK = 0,
    PENSTOCK_INTERNAL = 1,       // a bug of the library
    PENSTOCK_USAGE = 2,          // a wrong argument
    PENSTOCK_DOES_NOT_FIT = 3,   // disk space or memory, found before anything was done
    PENSTOCK_STORAGE = 4,        // I/O error; directory in use, foreign, not writable; no whole generation
    PENSTOCK_OUT_OF_MEMORY = 5,  // found while running
    PENSTOCK_NON_FINITE = 6,     // of sessions alone (penstock_session.h): a gradient or a new weight
    PENSTOCK_PEER_LOST = 7,      // of several ranks alone (penstock_ranks.h): another rank was lost, or failed
    // Storage errors that a program may want to tell from others:
    PENSTOCK_DAMAGED = 16,   // the bytes on the device are not the ones that were written, also when read again
    PENSTOCK_POISONED = 17,  // a flush or a commit failed: nothing can be committed any more; open the store again
    // No errors, but no success either:
    PENSTOCK_BUSY = 32,       // not while that is in flight (the message names it): take results, then try again
    PENSTOCK_NOT_FOUND = 33,  // no object, key or generation of that name
    PENSTOCK_TIMEOUT = 34,    // penstock_next: nothing has ended in that time
    PENSTOCK_IDLE = 35        // penstock_next: nothing is in flight and every result was taken
} penstock_status;

const char* penstock_status_name(penstock_status status);  // "PENSTOCK_USAGE"; static

// 2048 bytes, for good.
typedef struct penstock_error {
    penstock_status status;
    char message[2044];  // what failed, where, the likely cause, the remedy; cut when longer
} penstock_error;

// ---------------------------------------------------------------- open and close

typedef struct penstock_store penstock_store;

// To be created. An array of them: penstock_store_options.object_struct_bytes.
typedef struct penstock_object {
    const char* name;     // 1 to 255 bytes of UTF-8, unique in its store
    uint64_t bytes;       // > 0
    uint64_t tile_bytes;  // a multiple of 4096 (of penstock_alignment for ranges of several tiles), or at least `bytes`
                          // (one tile of any length); 0: 4 MiB. At most 2^24 tiles per store. Below 1 MiB the device is
                          // not used to the full.
} penstock_object;

typedef enum penstock_mode {
    PENSTOCK_OPEN_OR_CREATE = 0,  // create when nothing was ever committed there
    PENSTOCK_OPEN = 1,            // PENSTOCK_STORAGE when nothing was
    PENSTOCK_CREATE = 2           // PENSTOCK_STORAGE when something was: it is not overwritten
} penstock_mode;

typedef enum penstock_backend {
    PENSTOCK_BACKEND_BEST = 0,  // the first of these that passes a trial read
    PENSTOCK_BACKEND_IO_URING = 1,
    PENSTOCK_BACKEND_LIBAIO = 2,  // with PENSTOCK_DIRECT only
    PENSTOCK_BACKEND_THREADS = 3
} penstock_backend;

typedef enum penstock_caching {
    PENSTOCK_DIRECT = 0,     // past the page cache, where the file system can (else through it, and a note says so)
    PENSTOCK_PAGE_CACHE = 1  // through it
} penstock_caching;

typedef enum penstock_durability {
    PENSTOCK_DURABLE = 0,  // commits, and what the newest one holds is found by the next start
    PENSTOCK_SCRATCH = 1   // half the disk space, and nothing is ever committed or found again
} penstock_durability;

// How much of the newest generation is read and checked when a store is opened. If damage is found then and the
// generation before is whole, the store goes back to that one, and a note says so; damage found later is an error.
typedef enum penstock_verify {
    PENSTOCK_VERIFY_NONE = 0,
    PENSTOCK_VERIFY_SAMPLE = 1,  // the first and last tile of each object and every 16th of all
    PENSTOCK_VERIFY_ALL = 2
} penstock_verify;

// Zero in a member is its default. Set struct_bytes, and zero what you do not set:
// `penstock_store_options options = {.struct_bytes = sizeof options, ...}`.
typedef struct penstock_store_options {
    size_t struct_bytes;  // sizeof(penstock_store_options)
    // One directory per device, 1 to 64, each existing or with an existing parent; always all of them, in the same
    // order. The first also holds the manifests.
    const char* const* directories;
    size_t directory_count;
    // Of a new store: one number per directory, in any one unit, in whose proportion they get tiles. NULL: in turn.
    const double* bandwidths;
    const char* job;  // who owns the store: 1 to 200 bytes; another name is refused there
    penstock_mode mode;
    penstock_durability durability;  // a store that exists must be of this kind (PENSTOCK_USAGE otherwise)
    penstock_verify verify;
    // What to create. A store that exists must have exactly these, in this order (PENSTOCK_USAGE otherwise); with none
    // given it is taken as it is.
    const penstock_object* objects;
    size_t object_count;
    size_t object_struct_bytes;  // sizeof(penstock_object), from one object to the next; with objects only
    penstock_backend backend;
    penstock_caching caching;
    uint64_t deadline_ms;  // 0: 120 s. After that long with the device, an operation is given up: see penstock_result.
    // Called by penstock_store_open while it pre-writes the files of a new store, which takes as long as writing all
    // objects twice, or while it verifies. NULL: not called. Must return, and not call the store.
    void (*progress)(uint64_t done_bytes, uint64_t total_bytes, void* user);
    void* progress_user;
} penstock_store_options;

// Locks the directories for as long as the store is open (or the process lives). A new store takes twice its objects'
// bytes on disk (a scratch one once), reserved here; its first generation, number 0, comes with the first commit, and
// until then it is made anew at each start. Waits, at most deadline_ms, until the last write that a killed process had
// under way there has landed. What is found is made durable once more by the first write or commit, which fails as a
// commit does where that cannot be done. A file that cannot be read or is missing is an error that changes nothing.
// Where a file would be longer than the limit on file sizes allows (ulimit -f) it is PENSTOCK_DOES_NOT_FIT. Writes
// behind a limit that is lowered later end with PENSTOCK_STORAGE; the library keeps the signal SIGXFSZ, which the
// kernel sends then and which ends a program, from the thread that calls. Blocks. On failure *store is NULL.
penstock_status penstock_store_open(const penstock_store_options* options, penstock_store** store,
                                    penstock_error* error);

// PENSTOCK_BUSY while operations are in flight: nothing is closed then. Results not taken are dropped, and what was
// written and not committed is gone. NULL is fine. Blocks for no I/O.
penstock_status penstock_store_close(penstock_store* store, penstock_error* error);

// Lines to log: direct I/O or a faster backend refused and why, a damaged manifest copy, a tile that was right only
// when it was read again. Index from 0; NULL past the last. Valid until the next call on the store.
const char* penstock_note(const penstock_store* store, size_t index);
const char* penstock_backend_name(const penstock_store* store);  // "io_uring", "libaio", "threads"; static

// ---------------------------------------------------------------- what it holds

typedef struct penstock_object_info {
    size_t struct_bytes;  // sizeof(penstock_object_info), set by the caller; stays
    const char* name;     // the store's, until it is closed
    uint32_t object;      // its index, for penstock_range
    uint32_t tile_count;
    uint64_t bytes;
    uint64_t tile_bytes;    // of each tile but the last, which has the rest
    uint64_t memory_bytes;  // that all its tiles need as one range, where penstock_range_bytes allows one: `bytes`
                            // rounded up to penstock_alignment
} penstock_object_info;

uint32_t penstock_object_count(const penstock_store* store);  // 0 for NULL
penstock_status penstock_object_at(const penstock_store* store, uint32_t object, penstock_object_info* info,
                                   penstock_error* error);
// PENSTOCK_NOT_FOUND when there is none.
penstock_status penstock_find(const penstock_store* store, const char* name, penstock_object_info* info,
                              penstock_error* error);

// The newest committed generation. PENSTOCK_NOT_FOUND before the first commit.
penstock_status penstock_generation(const penstock_store* store, uint64_t* generation, penstock_error* error);

// Small values that belong to a generation: step, position, random state, ... `get` gives the value of the newest
// committed generation (PENSTOCK_NOT_FOUND when it has none), valid until a commit ends or the store is closed. `set`
// changes what the next commit will hold, which starts as a copy of the committed ones; a NULL value removes the key.
// 256 KiB per generation, keys included, 8 more per key; what would exceed it is PENSTOCK_DOES_NOT_FIT.
penstock_status penstock_client_get(const penstock_store* store, const char* key, const void** value, size_t* bytes,
                                    penstock_error* error);
penstock_status penstock_client_set(penstock_store* store, const char* key, const void* value, size_t bytes,
                                    penstock_error* error);

// ---------------------------------------------------------------- memory

// A budget of page-aligned memory in huge pages, which O_DIRECT moves two to three times faster than 4 KiB pages;
// allocated as a whole by create. Sizes are rounded up to 4096 bytes.
typedef struct penstock_pool penstock_pool;
typedef struct penstock_lease penstock_lease;

// PENSTOCK_DOES_NOT_FIT when the machine or its cgroup has less than `bytes`. On failure *pool is NULL.
penstock_status penstock_pool_create(uint64_t bytes, penstock_pool** pool, penstock_error* error);
// PENSTOCK_BUSY while a lease is out or an operation uses memory of one. NULL is fine.
penstock_status penstock_pool_destroy(penstock_pool* pool, penstock_error* error);
const char* penstock_pool_note(const penstock_pool* pool, size_t index);  // as penstock_note; the pool's

// A piece of the pool, aligned to 4096 bytes (where penstock_alignment is more, align within it); it holds what the
// last lease left there. Never waits: PENSTOCK_BUSY when no free piece is long enough now, PENSTOCK_DOES_NOT_FIT when
// none ever will be. On failure *lease is NULL.
penstock_status penstock_lease_acquire(penstock_pool* pool, uint64_t bytes, penstock_lease** lease,
                                       penstock_error* error);
// Gives the lease back, also while an operation uses it: the memory then returns to the pool when the operation has
// ended. NULL is fine.
void penstock_lease_release(penstock_lease* lease);

// Memory for an operation: a part of a lease, or the caller's own with lease == NULL.
typedef struct penstock_memory {
    void* data;  // aligned to penstock_alignment
    size_t bytes;
    penstock_lease* lease;
} penstock_memory;

penstock_memory penstock_lease_memory(const penstock_lease* lease);  // all of it; zeros for NULL

// What the store asks of addresses, in bytes: 4096, or more where the device asks for more (2 MiB at most); 0 for NULL.
uint64_t penstock_alignment(const penstock_store* store);

// ---------------------------------------------------------------- operations

// `tile_count` tiles of one object from `first_tile` on; 0: all to its end. {.object = 3} is the whole of object 3,
// {3, t, 1} its tile t. Tiles lie in memory as in the object, without gaps.
typedef struct penstock_range {
    uint32_t object;
    uint32_t first_tile;
    uint32_t tile_count;
} penstock_range;

// Memory that an operation on the range needs: its bytes, rounded up to penstock_alignment. PENSTOCK_USAGE for a range
// that is not there, or of several tiles in an object whose tiles are no multiple of penstock_alignment: those go one
// by one.
penstock_status penstock_range_bytes(const penstock_store* store, penstock_range range, uint64_t* memory_bytes,
                                     penstock_error* error);
// PENSTOCK_OK when a write of every tile of the range was begun at least once, so that it can be read (DAMAGED when
// that write failed); else PENSTOCK_NOT_FOUND.
penstock_status penstock_written(const penstock_store* store, penstock_range range, penstock_error* error);

// Who goes first when much is asked: demand, prefetch, write-back, scrub (a check in idle time). Reads are demand
// (default), prefetch or scrub; writes are write-back (default), demand or scrub.
typedef enum penstock_urgency {
    PENSTOCK_URGENCY_DEFAULT = 0,
    PENSTOCK_DEMAND = 1,
    PENSTOCK_PREFETCH = 2,
    PENSTOCK_WRITE_BACK = 3,
    PENSTOCK_SCRUB = 4
} penstock_urgency;

// Reads the newest bytes, committed or not, and verifies each tile against its hash. After an error the memory holds
// anything. Past the object's end, up to what penstock_range_bytes says, it is set to zero.
// PENSTOCK_BUSY: a tile of the range has an operation in flight. PENSTOCK_USAGE: a tile was never written.
penstock_status penstock_read(penstock_store* store, penstock_range range, penstock_memory memory,
                              penstock_urgency urgency, void* user, penstock_error* error);

// Writes the range as part of the next generation; committed bytes stay as they are until then. The memory must not
// change before the result, and is set to zero past the object's end. After an error no commit succeeds before the
// range was written again. PENSTOCK_BUSY: a tile of the range has an operation in flight, or a commit is.
// PENSTOCK_POISONED: an earlier commit failed.
penstock_status penstock_write(penstock_store* store, penstock_range range, penstock_memory memory,
                               penstock_urgency urgency, void* user, penstock_error* error);

// Makes all that was written since the last commit, and the client's values, durable as the next generation. Reads may
// go on meanwhile. PENSTOCK_BUSY: a write or another commit is in flight. PENSTOCK_USAGE: the store is scratch.
penstock_status penstock_commit(penstock_store* store, void* user, penstock_error* error);

typedef enum penstock_kind { PENSTOCK_READ = 0, PENSTOCK_WRITE = 1, PENSTOCK_COMMIT = 2 } penstock_kind;

typedef struct penstock_result {
    size_t struct_bytes;  // sizeof(penstock_result), set by the caller; stays
    penstock_kind kind;
    penstock_status status;  // OK, STORAGE, DAMAGED, POISONED; USAGE: the kernel cannot reach the memory (EFAULT)
    void* user;              // as given
    const char* message;     // empty when OK; valid until the next penstock_next or penstock_store_close
    // Not 0: the device has not answered by the deadline and may still read or write this memory. It must stay
    // allocated until the process has ended (a lease's memory does by itself). The store serves nothing any more, its
    // directories stay locked, and closing it frees nothing: report the message and end the process.
    int memory_lost;
} penstock_result;

// Takes the next result, waiting for it up to `timeout_ms` (0: not at all; negative: for as long as it takes, which the
// deadline bounds). PENSTOCK_OK: *result is set, whatever its own status. PENSTOCK_TIMEOUT, PENSTOCK_IDLE: it is not.
// Nor is it after PENSTOCK_OUT_OF_MEMORY, but no result is lost: call again.
penstock_status penstock_next(penstock_store* store, int64_t timeout_ms, penstock_result* result,
                              penstock_error* error);

// Readable, for poll, select and epoll, while penstock_next has something to do: call it with timeout 0 until it
// returns another status than PENSTOCK_OK. It may find nothing: while operations are in flight the descriptor also
// becomes readable for the store's own timers, 10 ms after the last call (1 ms with a backend that cannot signal). Do
// not read from it, and do not close it: it is the store's. When the last result of a loss (memory_lost) was taken it
// is not readable any more. -1 for NULL.
int penstock_event_fd(const penstock_store* store);

#ifdef __cplusplus
}
#endif

#endif  // PENSTOCK_H
