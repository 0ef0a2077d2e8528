// Each run finds the tensor that the last one committed, adds one to every number and commits it again. A run that is
// killed changes nothing. tensors DIRECTORY prints "run 1"; run again, "run 2".
#include "aio/words/error.h"
#include "pinned_pool/pinned_pool.h"
#include "swap/store/blocking.h"
#include "swap/store/open_store.h"

#include <cstdio>

using namespace penstock;

int main(int argc, char** argv) try {
    constexpr std::size_t bytes = 16 << 20, tile_bytes = 4 << 20;
    pool::Budget budget(bytes, "the example's budget");
    budget.add({.name = "weights", .bytes = bytes, .setting = "a smaller tensor"});
    pool::PinnedPool pool(budget, pool::MachineMemory::read(), {});
    pool::Lease lease = pool.acquire(pool.use("weights"), bytes);
    auto* const numbers = reinterpret_cast<int*>(lease.data());

    store::OpenStore open({argc > 1 ? argv[1] : "example-store"}, "example");  // locked while it lives
    open.start_io({});
    const std::vector<store::ObjectSpec> objects = {{"weights", bytes, tile_bytes}};  // another store is refused
    store::TensorStore& store = open.committed() ? open.open({.objects = objects}) : open.create({.objects = objects});
    const std::uint32_t weights = store.find("weights").value();
    try {
        for (std::uint32_t tile = 0; tile < store.layout().tile_count(weights); ++tile) {
            const std::span<std::byte> part = lease.span().subspan(tile * tile_bytes, tile_bytes);
            if (store.written({weights, tile})) read_blocking(open.io(), store, {weights, tile}, part);
            for (std::size_t i = 0; i < tile_bytes / sizeof(int); ++i) ++reinterpret_cast<int*>(part.data())[i];
            write_blocking(open.io(), store, {weights, tile}, part);
        }
        commit_blocking(open.io(), store, {{"by", "tensors.cpp"}});  // from here on a crash finds these numbers
    } catch (const Error&) {
        if (store.abandoned()) lease.orphan();  // a device that does not answer may still write there
        throw;
    }
    std::printf("run %d\n", numbers[bytes / sizeof(int) - 1]);
    return 0;
} catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
}
