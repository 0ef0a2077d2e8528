#include "tests/swap/calls/call_store.h"

#include "aio/words/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace penstock::testing {

std::vector<std::string> call_store_paths(const std::string& root, std::size_t devices) {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < devices; ++i) paths.push_back(fmt::format("{}/store{}", root, i));
    return paths;
}

void start_call_io(store::OpenStore& open, CallBackend backend, std::chrono::nanoseconds deadline) {
    const store::StoreIoOptions options{.limits = {.deadline = deadline}};
    if (backend == CallBackend::best) return open.start_io(options);
    open.start_io(options, {.backend = aio::make_thread_backend({.depth = 16, .threads_per_device = 1}), .note = {}});
}

store::OpenStore lock_call_store(const std::vector<std::string>& paths, CallBackend backend,
                                 std::chrono::nanoseconds deadline) {
    store::OpenStore open(paths, "calls");
    start_call_io(open, backend, deadline);
    return open;
}

store::TensorStore& create_call_store(store::OpenStore& open) {
    return open.create({.objects = Exercise::objects()});
}

void make_call_store(const std::vector<std::string>& paths, std::optional<std::uint64_t> last) {
    store::OpenStore open = lock_call_store(paths, CallBackend::one_thread);
    store::TensorStore& store = create_call_store(open);
    for (std::uint64_t generation = 0; last && generation <= *last; ++generation)
        throw_error(call_exercise.advance(open.io(), store, generation));
}

void throw_error(const std::optional<store::StoreError>& error) {
    if (error) throw Error(ExitCode::storage, error->message);
}

std::string check_call_store(const std::vector<std::string>& paths, const std::vector<std::uint64_t>& allowed) {
    std::uint64_t found = 0;
    {
        store::OpenStore open = lock_call_store(paths, CallBackend::one_thread);
        if (!open.committed()) return "a store with a generation counts as none";
        store::TensorStore& store = open.open({.verify = store::VerifyScope::all});
        found = store.generation().value();
        if (std::find(allowed.begin(), allowed.end(), found) == allowed.end())
            return fmt::format("generation {} was found, and {} was to be there", found, fmt::join(allowed, " or "));
        if (std::string difference = call_exercise.difference(open.io(), store, found); !difference.empty())
            return difference;
        throw_error(call_exercise.advance(open.io(), store, found + 1));
    }
    store::OpenStore open = lock_call_store(paths, CallBackend::one_thread);
    store::TensorStore& store = open.open();
    if (store.generation() != found + 1) return fmt::format("generation {} was forgotten", found + 1);
    return call_exercise.difference(open.io(), store, found + 1);
}

}  // namespace penstock::testing
