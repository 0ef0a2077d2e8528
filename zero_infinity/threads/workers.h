// A fixed set of threads for elementwise work on host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace penstock::zero {

// One caller at a time (checked), also not from within work. The calling thread works too, so Workers(1) starts no
// thread. Work has the processor's default arithmetic, whatever the caller has set. No allocation in run(). The
// constructor throws Error (out_of_memory) when the system gives no more threads.
//
//   Workers workers(2);
//   workers.run(chunks, [&](std::size_t chunk) { sums[chunk] = sum(chunk); });
class Workers {
   public:
    explicit Workers(unsigned thread_count);
    ~Workers();
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

    unsigned thread_count() const noexcept;

    // Calls work(i) for each i in [0, count), each once, on any of the threads, in any order; returns when all are
    // done, and what they wrote is then visible to the caller. `work` must not throw: that ends the process.
    template <typename Work>
    void run(std::size_t count, Work&& work) noexcept {
        using Function = std::remove_reference_t<Work>;
        run_erased(
            count, [](void* context, std::size_t index) { (*static_cast<Function*>(context))(index); },
            const_cast<void*>(static_cast<const void*>(std::addressof(work))));
    }

   private:
    void run_erased(std::size_t count, void (*work)(void*, std::size_t), void* context) noexcept;
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace penstock::zero
