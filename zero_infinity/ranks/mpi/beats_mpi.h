// Whether the other ranks' processes run. Internal to the ranks over MPI.
#pragma once

#include "zero_infinity/ranks/mpi/last_words_mpi.h"
#include "zero_infinity/ranks/watch/peer_beats.h"

#include <mpi.h>

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock::zero {

// A thread beats to the ranks that read this one's beats (PeerBeats), and reads those that come here. Where one is
// silent it says so by the words. It waits for nobody.
class BeatsMpi {
   public:
    BeatsMpi(MPI_Comm ranks, BeatTimes times, LastWords& words);  // `ranks` is nobody else's; the words outlive it
    // Unless it was finished, MPI keeps what it may still be at.
    ~BeatsMpi();
    // All ranks are at their end, and call it: waits until no beat is on its way.
    void finish();

   private:
    struct Sent {
        std::uint64_t number = 0;
        MPI_Request request = MPI_REQUEST_NULL;
    };
    // What MPI touches.
    struct Mail {
        std::uint64_t come = 0;
        MPI_Request coming = MPI_REQUEST_NULL;
        std::list<Sent> sent;
    };

    void run(const BeatTimes& times, LastWords& words);
    bool is_over(BeatTimes::Time until_next);
    void stop();
    void send(std::uint64_t number);
    void receive();
    void await_next();

    const MPI_Comm ranks_;
    std::uint32_t own_ = 0;
    std::vector<std::uint32_t> readers_;  // of this rank's beats
    // The thread's own until it is joined.
    PeerBeats peers_;
    std::vector<std::uint64_t> heard_;  // the newest of each rank; 0: none
    std::unique_ptr<Mail> mail_ = std::make_unique<Mail>();

    std::mutex mutex_;
    std::condition_variable stopped_;
    bool is_stopped_ = false;
    std::thread thread_;
};

}  // namespace penstock::zero
