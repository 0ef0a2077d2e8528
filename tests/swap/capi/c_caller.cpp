#include "tests/swap/capi/c_caller.h"

#include "aio/backend.h"
#include "swap/capi/c_store.h"
#include "tests/swap/store/stuck_backend.h"

#include <gtest/gtest.h>

#include <utility>

namespace penstock::testing {

store::BackendSource gated(const Gate& gate) {
    return [&gate](const store::StoreDirectory&, const penstock_store_options&) {
        return aio::ChosenBackend{.backend = std::make_unique<StuckBackend>(aio::make_thread_backend({}), gate.closed),
                                  .note = {}};
    };
}

CCaller::CCaller(std::vector<penstock_object> created) : objects(std::move(created)) {}

penstock_store_options CCaller::options() const {
    names_.clear();
    for (const std::string& name : directories) names_.push_back(name.c_str());
    auto made = sized<penstock_store_options>();
    made.directories = names_.data();
    made.directory_count = names_.size();
    made.job = "test";
    made.objects = objects.data();
    made.object_count = objects.size();
    made.object_struct_bytes = sizeof objects[0];
    return made;
}

penstock_status CCaller::open(const penstock_store_options& wanted) {
    end();
    return penstock_store_open(&wanted, &store, &error);
}

void CCaller::open_with(const store::BackendSource& source) {
    end();
    const penstock_store_options wanted = options();
    store = new penstock_store(open_store(&wanted, source));
}

void CCaller::end() {
    while (penstock_next(store, -1, &result, &error) == PENSTOCK_OK) continue;
    EXPECT_EQ(penstock_store_close(store, &error), PENSTOCK_OK) << error.message;
    store = nullptr;
}

penstock_status CCaller::finish() {
    EXPECT_EQ(penstock_next(store, -1, &result, &error), PENSTOCK_OK) << error.message;
    message = result.message;
    auto further = sized<penstock_result>();
    EXPECT_EQ(penstock_next(store, 0, &further, &error), PENSTOCK_IDLE) << "more than one result";
    return result.status;
}

std::uint64_t CCaller::bytes_of(penstock_range range) const {
    std::uint64_t bytes = 0;
    EXPECT_EQ(penstock_range_bytes(store, range, &bytes, nullptr), PENSTOCK_OK);
    return bytes;
}

penstock_status CCaller::read(penstock_range range, aio::ScratchMemory& memory) {
    const penstock_status begun =
        penstock_read(store, range, memory_of(memory), PENSTOCK_URGENCY_DEFAULT, nullptr, &error);
    return begun == PENSTOCK_OK ? finish() : begun;
}

penstock_status CCaller::write(penstock_range range, std::uint64_t seed) {
    const aio::ScratchMemory memory(bytes_of(range));
    aio::fill_random(memory.span(), seed);
    const penstock_status begun =
        penstock_write(store, range, memory_of(memory), PENSTOCK_URGENCY_DEFAULT, nullptr, &error);
    return begun == PENSTOCK_OK ? finish() : begun;
}

penstock_status CCaller::commit() {
    const penstock_status begun = penstock_commit(store, nullptr, &error);
    return begun == PENSTOCK_OK ? finish() : begun;
}

}  // namespace penstock::testing
