// The promise of penstock.h on the sizes of its structures: callers with shorter and with longer ones.
#include "swap/capi/c_struct.h"
#include "tests/swap/capi/c_caller.h"
#include "tests/swap/capi/sized_caller.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace penstock::testing {
namespace {

TEST(CStructSizes, AProgramOfAnEarlierHeaderGoesOnWorking) {
    const TemporaryDirectory scratch{aio::quick_temporary_path()};
    EXPECT_STREQ(call_as_earlier(scratch.file("store").c_str()), "");
}

TEST(CStructSizes, AProgramOfALaterHeaderWorksAsLongAsItWishesNothingNew) {
    const TemporaryDirectory scratch{aio::quick_temporary_path()};
    EXPECT_STREQ(call_as_later(scratch.file("store").c_str()), "");
    const std::string answer = wish_as_later(scratch.file("other").c_str());
    EXPECT_NE(answer.find("options has 136 bytes and sets something at offset 120"), std::string::npos) << answer;
    EXPECT_NE(answer.find("an object has 48 bytes and sets something at offset 40"), std::string::npos) << answer;
}

// Full of something, as on a stack.
template <typename Struct>
struct Garbage {
    Garbage() { std::memset(&given, 0xa5, sizeof given); }
    bool untouched_but_size() const {
        std::array<unsigned char, sizeof(Struct)> bytes;
        std::memcpy(bytes.data(), &given, sizeof given);
        return std::all_of(bytes.begin() + sizeof(std::size_t), bytes.end(), [](unsigned char b) { return b == 0xa5; });
    }
    Struct given;
};

TEST(CStructSizes, WithoutAPossibleSizeNothingIsWrittenAndNoResultIsTaken) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    const aio::ScratchMemory memory(1 << 20);
    ASSERT_EQ(penstock_write(caller.store, states, memory_of(memory), PENSTOCK_DEMAND, nullptr, nullptr), PENSTOCK_OK);
    Garbage<penstock_object_info> info;
    Garbage<penstock_result> result;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{31}, ~std::size_t{0}}) {
        info.given.struct_bytes = result.given.struct_bytes = bytes;
        EXPECT_REFUSED(PENSTOCK_USAGE, "info.struct_bytes is",
                       penstock_find(caller.store, "states", &info.given, &error));
        EXPECT_REFUSED(PENSTOCK_USAGE, "info.struct_bytes is",
                       penstock_object_at(caller.store, 0, &info.given, &error));
        EXPECT_REFUSED(PENSTOCK_USAGE, "sizeof", penstock_next(caller.store, -1, &result.given, &error));
        EXPECT_TRUE(info.untouched_but_size() && result.untouched_but_size()) << bytes;
    }
    EXPECT_EQ(caller.finish(), PENSTOCK_OK) << "the result is still there";
}

TEST(CStructSizes, ObjectsGoByTheirCallersStride) {
    CCaller caller;
    penstock_store_options options = caller.options();
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{1} << 40}) {
        options.object_struct_bytes = bytes;
        EXPECT_REFUSED(PENSTOCK_USAGE, "object_struct_bytes", penstock_store_open(&options, &caller.store, &error));
    }
}

// The structure of a later library, and a caller of today's.
struct Grown {
    std::size_t struct_bytes;
    int known;
    int later;
};

TEST(CStructSizes, AMemberThatIsAddedReachesWhoHasItOnly) {
    const Grown own{.struct_bytes = sizeof own, .known = 1, .later = 2};
    Grown place{.struct_bytes = offsetof(Grown, later), .known = 0, .later = 77};
    store::put(own, place);
    EXPECT_EQ(place.struct_bytes, offsetof(Grown, later));
    EXPECT_EQ(place.known, 1);
    EXPECT_EQ(place.later, 77);
    EXPECT_EQ(store::taken(&place, sizeof(std::size_t), "it").later, 0) << "what is not the caller's was read";
    place.struct_bytes = sizeof place;
    store::put(own, place);
    EXPECT_EQ(place.later, 2);
}

TEST(CStructSizes, WhatHasNoSizeNeverChanges) {
    EXPECT_EQ(sizeof(penstock_error), 2048U);
    EXPECT_EQ(sizeof(penstock_memory), 24U);
    EXPECT_EQ(sizeof(penstock_range), 12U);
}

}  // namespace
}  // namespace penstock::testing
