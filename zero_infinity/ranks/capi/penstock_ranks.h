// What a program gives that trains one model with several processes: how they speak to each other. Each process is one
// rank of the run, and opens a session of its own (penstock_session.h).
//
// The library makes everything of two collectives, which torch.distributed, MPI and NCCL all have; so the bits of a sum
// over ranks depend on their number alone.
#ifndef PENSTOCK_RANKS_H
#define PENSTOCK_RANKS_H

#include "penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

struct penstock_session;

// Each has a communicator of its own, because a call on one is under way while another is made.
typedef enum penstock_channel {
    PENSTOCK_CONTROL = 0,  // many small calls
    PENSTOCK_BULK = 1      // weights and sums
} penstock_channel;

// The structure and `name` are copied when they are given; the functions and `user` are used until the call that they
// were given to has returned, or the session that it opened is closed.
//
// all_gather and exchange are called on a thread of each channel's own, one call at a time on each, in the same order
// and with the same bytes on all ranks: from 1 byte to 1 GiB a block. While a session is opened, closed or looked at,
// also on the thread that does; so the program must hold no lock there that they need (Python: load the library by
// CDLL, which gives up the interpreter's lock).
//
// Each returns PENSTOCK_OK when every rank has made the call and this one's part is done: what others gave is there.
// Anything else, with a message in `error`, ends what the ranks do, on all of them. It must return so where a rank is
// lost, or further behind than `deadline_ms`, the time of the work between calls included. Once it has returned,
// nothing touches the memory that it was given. No exception may leave it: of ctypes' functions Python drops them, and
// the status is then whatever it is.
typedef struct penstock_ranks {
    size_t struct_bytes;   // sizeof(penstock_ranks)
    uint32_t rank;         // of this process, less than ranks
    uint32_t ranks;        // of one, nothing is called
    const char* name;      // of what is beneath, for messages: "torch.distributed gloo"
    uint64_t deadline_ms;  // not 0

    // `all` becomes the `bytes` of each rank, one behind the other in their order. `mine` is its place there, or
    // overlaps nothing.
    penstock_status (*all_gather)(penstock_channel channel, const void* mine, void* all, uint64_t bytes, void* user,
                                  penstock_error* error);
    // Block i of `to`, of `block_bytes`, goes to rank i; block i of `from` is what rank i sent here, this rank's own
    // too. They do not overlap.
    penstock_status (*exchange)(penstock_channel channel, const void* to, void* from, uint64_t block_bytes, void* user,
                                penstock_error* error);
    // Ends both channels, from any thread, any number of times; waits for nobody. What is under way here returns soon,
    // on other ranks within their deadline. Where it can be told to them, `cause` is in their errors.
    void (*abort)(const char* cause, void* user);
    void* user;  // is given to each call

    // The board: a few short texts by keys, which all ranks see, and by which they notice within seconds that one of
    // them has failed, and why. NULL, all three: there is none, and they notice by their collectives alone. Called on a
    // thread of its own while others are under way.
    //
    // Keys, values and what is given back are text with a NUL behind it; keys have at most 32 bytes, values 1500. What
    // was put stays as long as the run, and is of this run alone: another one, also of the same processes, has a board
    // that is empty. Each returns within seconds, however long the process that keeps the board is stopped; anything
    // but what is named here says that the board is lost.
    //
    // `value` takes the place of what stands at the key.
    penstock_status (*put)(const char* key, const char* value, void* user, penstock_error* error);
    // `stands` becomes what stands at the key from now on: `value`, or what was put there before by any rank.
    penstock_status (*put_first)(const char* key, const char* value, char* stands, size_t room, void* user,
                                 penstock_error* error);
    // PENSTOCK_NOT_FOUND at once where nothing was put.
    penstock_status (*get)(const char* key, char* value, size_t room, void* user, penstock_error* error);
} penstock_ranks;

// What the way between the ranks gives to this one. 0 where there is one rank alone, but for sums.
typedef struct penstock_rank_rates {
    size_t struct_bytes;          // sizeof(penstock_rank_rates)
    double small_seconds;         // of a small call, the median
    double gather_bytes_per_s;    // that come from other ranks
    double exchange_bytes_per_s;  // the same of addends, their sum beside it
    double sum_bytes_per_s;       // of addends, by the sum alone
} penstock_rank_rates;

// Checks the bits of a sum over all ranks, then measures with `bytes` of one rank's part: a multiple of 4, 1 GiB at
// most; (ranks + 2) times as many are taken of memory. All ranks call it at once. Blocks. INTERNAL: the sum is not that
// of a loop over the ranks. PEER_LOST: a function of `ranks` failed; USAGE: the ranks do not call the same.
penstock_status penstock_ranks_probe(const penstock_ranks* ranks, uint64_t bytes, penstock_rank_rates* rates,
                                     penstock_error* error);

// What each rank of a session says, in their order: `everyones` has room for `bytes` of each, above 0. All of them make
// it, between the same others of their calls: one that makes another call, or this with another `what`, ends all, and
// both are named. Of one rank a copy.
penstock_status penstock_session_gather(struct penstock_session* session, const char* what, const void* mine,
                                        void* everyones, uint64_t bytes, penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif
