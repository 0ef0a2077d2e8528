// What swap/capi/penstock.h refuses of a C caller before anything has begun.
#include "aio/words/error.h"
#include "swap/capi/c_error.h"
#include "swap/capi/c_range.h"
#include "swap/capi/penstock.h"
#include "tests/swap/capi/c_caller.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

// ---------------------------------------------------------------- arguments

TEST(CRefusal, NullIsAnErrorWhereAHandleOrAPlaceIsNeeded) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    penstock_store* const store = caller.store;
    const penstock_store_options options = caller.options();
    auto info = sized<penstock_object_info>();
    auto result = sized<penstock_result>();
    std::uint64_t number = 0;
    std::size_t bytes = 0;
    const void* value = nullptr;
    penstock_pool* pool = nullptr;
    penstock_lease* lease = nullptr;
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_store_open(&options, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_object_at(nullptr, 0, &info, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_find(nullptr, "a", &info, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_generation(nullptr, &number, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_client_get(nullptr, "a", &value, &bytes, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_client_set(nullptr, "a", "", 0, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_range_bytes(nullptr, {}, &number, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_written(nullptr, {}, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_read(nullptr, {}, {}, PENSTOCK_DEMAND, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_write(nullptr, {}, {}, PENSTOCK_DEMAND, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_commit(nullptr, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "store is NULL", penstock_next(nullptr, 0, &result, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "result is NULL", penstock_next(store, 0, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "info is NULL", penstock_object_at(store, 0, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "info is NULL", penstock_find(store, "weights", nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "name is NULL", penstock_find(store, nullptr, &info, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "generation is NULL", penstock_generation(store, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "value is NULL", penstock_client_get(store, "a", nullptr, &bytes, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "bytes is NULL", penstock_client_get(store, "a", &value, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "key is NULL", penstock_client_get(store, nullptr, &value, &bytes, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "key is NULL", penstock_client_set(store, nullptr, "", 0, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "memory_bytes is NULL", penstock_range_bytes(store, {}, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "pool is NULL", penstock_pool_create(1, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "pool is NULL", penstock_lease_acquire(nullptr, 1, &lease, &error));
    ASSERT_EQ(penstock_pool_create(4096, &pool, nullptr), PENSTOCK_OK);
    EXPECT_REFUSED(PENSTOCK_USAGE, "lease is NULL", penstock_lease_acquire(pool, 1, nullptr, &error));
    EXPECT_EQ(penstock_pool_destroy(pool, nullptr), PENSTOCK_OK);
}

TEST(CRefusal, NullIsFineWhereThereIsNothingToDo) {
    EXPECT_EQ(penstock_store_close(nullptr, nullptr), PENSTOCK_OK);
    EXPECT_EQ(penstock_pool_destroy(nullptr, nullptr), PENSTOCK_OK);
    penstock_lease_release(nullptr);
    EXPECT_EQ(penstock_lease_memory(nullptr).data, nullptr);
    EXPECT_EQ(penstock_note(nullptr, 0), nullptr);
    EXPECT_EQ(penstock_pool_note(nullptr, 0), nullptr);
    EXPECT_EQ(penstock_backend_name(nullptr), nullptr);
    EXPECT_EQ(penstock_object_count(nullptr), 0U);
    EXPECT_EQ(penstock_alignment(nullptr), 0U);
    EXPECT_EQ(penstock_event_fd(nullptr), -1);
}

TEST(CRefusal, OptionsAreLookedAtBeforeAnythingIsTouched) {
    CCaller caller;
    const auto refuses = [&](const char* word, auto change) {
        penstock_store_options options = caller.options();
        std::vector<penstock_object> objects = caller.objects;
        options.objects = objects.data();
        change(options, objects);
        penstock_store* store = reinterpret_cast<penstock_store*>(&options);
        EXPECT_REFUSED(PENSTOCK_USAGE, word, penstock_store_open(&options, &store, &error));
        EXPECT_EQ(store, nullptr);
    };
    refuses("struct_bytes", [](auto& options, auto&) { options.struct_bytes = 1 << 20; });
    refuses("struct_bytes", [](auto& options, auto&) { options.struct_bytes = 0; });
    refuses("no directory", [](auto& options, auto&) { options.directories = nullptr; });
    refuses("no directory", [](auto& options, auto&) { options.directory_count = 0; });
    refuses("at most 64", [](auto& options, auto&) { options.directory_count = 65; });
    refuses("job is NULL", [](auto& options, auto&) { options.job = nullptr; });
    refuses("mode 3", [](auto& options, auto&) { fill_with(options.mode, 3); });
    refuses("backend 4", [](auto& options, auto&) { fill_with(options.backend, 4); });
    refuses("caching 2", [](auto& options, auto&) { fill_with(options.caching, 2); });
    refuses("durability 2", [](auto& options, auto&) { fill_with(options.durability, 2); });
    refuses("verify 3", [](auto& options, auto&) { fill_with(options.verify, 3); });
    const double stopped = 0;
    refuses("bandwidth 0 is 0", [&](auto& options, auto&) { options.bandwidths = &stopped; });
    refuses("objects is NULL", [](auto& options, auto&) { options.objects = nullptr; });
    refuses("name is NULL", [](auto&, auto& objects) { objects[1].name = nullptr; });
    refuses("multiple of 4096", [](auto&, auto& objects) { objects[0].tile_bytes = 5000; });
    EXPECT_FALSE(std::filesystem::exists(caller.directory()));
    refuses("no objects", [](auto& options, auto&) { options.object_count = 0; });
    refuses("above zero", [](auto&, auto& objects) { objects[0].bytes = 0; });
    refuses("names are unique", [](auto&, auto& objects) { objects[1].name = objects[0].name; });
    refuses("1 to 255", [](auto&, auto& objects) { objects[1].name = ""; });
    const char* none = nullptr;
    refuses("directory's name is NULL",
            [&](auto& options, auto&) { options.directories = &none, options.directory_count = 1; });
    refuses("", [](auto& options, auto&) { options.job = ""; });
    EXPECT_REFUSED(PENSTOCK_USAGE, "options is NULL", penstock_store_open(nullptr, &caller.store, &error));
}

TEST(CRefusal, RangesMemoryAndUrgencyAreChecked) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    const aio::ScratchMemory memory(1 << 20);
    const auto write = [&](penstock_range range, penstock_memory given, penstock_urgency urgency,
                           penstock_error* error) {
        return penstock_write(caller.store, range, given, urgency, nullptr, error);
    };
    const penstock_memory good = memory_of(memory);
    EXPECT_REFUSED(PENSTOCK_USAGE, "no object 2", write({2, 0, 0}, good, PENSTOCK_DEMAND, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "no tile 7", write({0, 7, 0}, good, PENSTOCK_DEMAND, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "no 2 tiles from tile 6", write({0, 6, 2}, good, PENSTOCK_DEMAND, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "no 4294967295", write({0, 1, ~0U}, good, PENSTOCK_DEMAND, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "data is NULL",
                   write(weights, {nullptr, 1 << 20, nullptr}, PENSTOCK_DEMAND, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "102400 are needed",
                   write(weights, {memory.data(), 102'399, nullptr}, PENSTOCK_DEMAND, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "not aligned",
                   write(weights, {memory.data() + 512, 200'000, nullptr}, PENSTOCK_DEMAND, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "PENSTOCK_PREFETCH", write(weights, good, PENSTOCK_PREFETCH, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "no urgency 7", write(weights, good, static_cast<penstock_urgency>(7), &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "PENSTOCK_WRITE_BACK",
                   penstock_read(caller.store, weights, good, PENSTOCK_WRITE_BACK, nullptr, &error));
    ASSERT_EQ(caller.write({0, 0, 3}, 1), PENSTOCK_OK);
    EXPECT_REFUSED(PENSTOCK_USAGE, "tile 3 of object 'weights' was never written",
                   penstock_read(caller.store, weights, good, PENSTOCK_DEMAND, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_NOT_FOUND, "tile 3 of object 'weights'", penstock_written(caller.store, weights, &error));
    EXPECT_EQ(penstock_written(caller.store, {0, 0, 3}, nullptr), PENSTOCK_OK);
    EXPECT_REFUSED(PENSTOCK_USAGE, "no object 2", penstock_written(caller.store, {2, 0, 0}, &error));
    auto info = sized<penstock_object_info>();
    EXPECT_REFUSED(PENSTOCK_USAGE, "no object 2", penstock_object_at(caller.store, 2, &info, &error));
    EXPECT_REFUSED(PENSTOCK_NOT_FOUND, "no object 'x'", penstock_find(caller.store, "x", &info, &error));
    EXPECT_EQ(penstock_next(caller.store, -1, &caller.result, nullptr), PENSTOCK_IDLE) << "none of them had begun";
}

TEST(CRefusal, TilesThatWouldLeaveGapsGoOneByOne) {
    // Not to be made through the C interface.
    const store::Layout layout({{"odd", 10'000, 5'000}}, {});
    EXPECT_EQ(memory_bytes(layout, tiles_of(layout, {0, 1, 1})), 8'192U);
    EXPECT_THROW(static_cast<void>(memory_bytes(layout, tiles_of(layout, {0, 0, 2}))), store::Refusal);
}

TEST(CRefusal, MemoryMustLieWithinItsLease) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    penstock_pool* pool = nullptr;
    penstock_lease* first = nullptr;
    penstock_lease* second = nullptr;
    ASSERT_EQ(penstock_pool_create(256 << 10, &pool, nullptr), PENSTOCK_OK);
    ASSERT_EQ(penstock_lease_acquire(pool, 102'400, &first, nullptr), PENSTOCK_OK);
    ASSERT_EQ(penstock_lease_acquire(pool, 102'400, &second, nullptr), PENSTOCK_OK);
    penstock_memory wrong = penstock_lease_memory(second);
    wrong.lease = first;
    EXPECT_REFUSED(PENSTOCK_USAGE, "within its lease",
                   penstock_write(caller.store, weights, wrong, PENSTOCK_DEMAND, nullptr, &error));
    penstock_memory late = penstock_lease_memory(first);
    late.data = static_cast<std::byte*>(late.data) + 4096;
    EXPECT_REFUSED(PENSTOCK_USAGE, "within its lease",
                   penstock_write(caller.store, weights, late, PENSTOCK_DEMAND, nullptr, &error));
    penstock_lease_release(first);
    penstock_lease_release(second);
    EXPECT_EQ(penstock_pool_destroy(pool, nullptr), PENSTOCK_OK);
}

TEST(CRefusal, PoolsAndLeasesSayWhatDoesNotFit) {
    penstock_pool* pool = nullptr;
    penstock_lease* lease = nullptr;
    penstock_lease* further = nullptr;
    EXPECT_REFUSED(PENSTOCK_USAGE, "0 bytes", penstock_pool_create(0, &pool, &error));
    EXPECT_REFUSED(PENSTOCK_USAGE, "bytes", penstock_pool_create(~0ULL, &pool, &error));
    EXPECT_REFUSED(PENSTOCK_DOES_NOT_FIT, "penstock_pool_create", penstock_pool_create(1ULL << 59, &pool, &error));
    ASSERT_EQ(penstock_pool_create(8192, &pool, nullptr), PENSTOCK_OK);
    EXPECT_REFUSED(PENSTOCK_USAGE, "0 bytes", penstock_lease_acquire(pool, 0, &lease, &error));
    EXPECT_REFUSED(PENSTOCK_DOES_NOT_FIT, "from a pool of", penstock_lease_acquire(pool, 8193, &lease, &error));
    ASSERT_EQ(penstock_lease_acquire(pool, 4097, &lease, nullptr), PENSTOCK_OK);
    EXPECT_REFUSED(PENSTOCK_BUSY, "no free piece", penstock_lease_acquire(pool, 1, &further, &error));
    EXPECT_REFUSED(PENSTOCK_BUSY, "8192 bytes", penstock_pool_destroy(pool, &error));
    penstock_lease_release(lease);
    EXPECT_EQ(penstock_pool_destroy(pool, nullptr), PENSTOCK_OK);
}

TEST(CRefusal, ClientValuesAreBounded) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    const std::string large(256 << 10, 'x');
    const auto set = [&](const char* key, std::size_t bytes, penstock_error* error) {
        return penstock_client_set(caller.store, key, large.data(), bytes, error);
    };
    EXPECT_REFUSED(PENSTOCK_DOES_NOT_FIT, "key 'k'", set("k", large.size(), &error));
    EXPECT_EQ(set("k", large.size() - 8 - 1, nullptr), PENSTOCK_OK) << "exactly the room there is";
    EXPECT_REFUSED(PENSTOCK_DOES_NOT_FIT, "key 'l'", set("l", 0, &error));
    EXPECT_EQ(caller.commit(), PENSTOCK_OK) << caller.message;
}

// ---------------------------------------------------------------- directories

TEST(CRefusal, DirectoriesOfOthersAndStoresThatAreThereStayAsTheyAre) {
    CCaller caller;
    penstock_store* second = nullptr;
    penstock_store_options options = caller.options();
    options.mode = PENSTOCK_OPEN;
    EXPECT_REFUSED(PENSTOCK_STORAGE, "holds no store", penstock_store_open(&options, &second, &error));
    EXPECT_FALSE(std::filesystem::exists(caller.directory()));
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    ASSERT_EQ(caller.commit(), PENSTOCK_OK);
    options = caller.options();
    EXPECT_REFUSED(PENSTOCK_STORAGE, "in use", penstock_store_open(&options, &second, &error));
    caller.end();
    options.mode = PENSTOCK_CREATE;
    EXPECT_REFUSED(PENSTOCK_STORAGE, "holds a store already", penstock_store_open(&options, &second, &error));
    options.mode = PENSTOCK_OPEN_OR_CREATE;
    options.job = "another";
    EXPECT_REFUSED(PENSTOCK_STORAGE, "'test'", penstock_store_open(&options, &second, &error));
    options = caller.options();
    caller.objects[1].bytes = 6'000;
    EXPECT_REFUSED(PENSTOCK_USAGE, "object 1 is 'states' of 5000 bytes",
                   penstock_store_open(&options, &second, &error));
    options.object_count = 1;
    EXPECT_REFUSED(PENSTOCK_USAGE, "and none here", penstock_store_open(&options, &second, &error));
    EXPECT_EQ(second, nullptr);
}

TEST(CRefusal, AStoreThatDoesNotFitOnTheDiskSaysSo) {
    CCaller caller({{"huge", 1ULL << 50, 1ULL << 40}});
    EXPECT_EQ(caller.open(), PENSTOCK_DOES_NOT_FIT);
    EXPECT_NE(std::string(caller.error.message).find("bytes"), std::string::npos) << caller.error.message;
}

TEST(CRefusal, LibaioIsForDirectFilesOnly) {
    CCaller caller;
    penstock_store_options options = caller.options();
    options.backend = PENSTOCK_BACKEND_LIBAIO;
    options.caching = PENSTOCK_PAGE_CACHE;
    EXPECT_EQ(caller.open(options), PENSTOCK_STORAGE);
    EXPECT_NE(std::string(caller.error.message).find("page cache"), std::string::npos) << caller.error.message;
}

// ---------------------------------------------------------------- exceptions

TEST(CRefusal, EveryExceptionBecomesAStatusAndAText) {
    const auto thrown = [](auto exception) {
        penstock_error error{};
        const penstock_status status = store::guarded(&error, [&]() -> penstock_status { throw exception; });
        EXPECT_EQ(status, error.status);
        EXPECT_STRNE(error.message, "");
        return status;
    };
    EXPECT_EQ(thrown(Error(ExitCode::usage, "x")), PENSTOCK_USAGE);
    EXPECT_EQ(thrown(Error(ExitCode::does_not_fit, "x")), PENSTOCK_DOES_NOT_FIT);
    EXPECT_EQ(thrown(Error(ExitCode::storage, "x")), PENSTOCK_STORAGE);
    EXPECT_EQ(thrown(Error(ExitCode::out_of_memory, "x")), PENSTOCK_OUT_OF_MEMORY);
    EXPECT_EQ(thrown(Error(ExitCode::non_finite, "x")), PENSTOCK_NON_FINITE);
    EXPECT_EQ(thrown(Error(ExitCode::peer_lost, "x")), PENSTOCK_PEER_LOST);
    EXPECT_EQ(thrown(store::Refusal(PENSTOCK_BUSY, "x")), PENSTOCK_BUSY);
    EXPECT_EQ(thrown(std::bad_alloc()), PENSTOCK_OUT_OF_MEMORY);
    EXPECT_EQ(thrown(std::runtime_error("x")), PENSTOCK_INTERNAL);
    EXPECT_EQ(thrown(7), PENSTOCK_INTERNAL);
}

TEST(CRefusal, ATextThatIsTooLongIsCut) {
    penstock_error error{};
    const std::size_t room = sizeof error.message - 1;
    store::tell(&error, PENSTOCK_USAGE, std::string(room, 'x'));
    EXPECT_EQ(std::string(error.message), std::string(room, 'x'));
    store::tell(&error, PENSTOCK_USAGE, std::string(room + 1, 'x'));
    EXPECT_EQ(std::string(error.message), std::string(room - 3, 'x').append("..."));
    EXPECT_EQ(store::tell(nullptr, PENSTOCK_USAGE, "x"), PENSTOCK_USAGE);
}

}  // namespace
}  // namespace penstock::testing
