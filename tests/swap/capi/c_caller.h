// The C program in tests of swap/capi/penstock.h: its options, its store, and memory that is full of something.
#pragma once

#include "swap/capi/c_open.h"
#include "swap/capi/penstock.h"
#include "tests/aio/fakes/scratch.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace penstock::testing {

// In flight for as long as the gate is closed: then nothing comes back, whatever the device has done.
struct Gate {
    bool closed = false;
};
store::BackendSource gated(const Gate& gate);

// Zeros but for struct_bytes.
template <typename Struct>
Struct sized() {
    Struct made{};
    made.struct_bytes = sizeof made;
    return made;
}

// One thread. Drains and closes its store when it goes.
class CCaller {
   public:
    CCaller() : CCaller(std::vector<penstock_object>{{"weights", 100'000, 16'384}, {"states", 5'000, 0}}) {}
    explicit CCaller(std::vector<penstock_object> created);
    ~CCaller() { end(); }
    CCaller(const CCaller&) = delete;
    CCaller& operator=(const CCaller&) = delete;

    penstock_store_options options() const;  // points into this
    penstock_status open(const penstock_store_options& wanted);
    penstock_status open() { return open(options()); }
    void open_with(const store::BackendSource& source);  // throws
    void end();
    std::string directory() const { return scratch.file("store"); }

    // Waits for exactly one result; its status.
    penstock_status finish();
    // The whole range, from or to memory of its length, which is returned.
    penstock_status read(penstock_range range, aio::ScratchMemory& memory);
    penstock_status write(penstock_range range, std::uint64_t seed);
    penstock_status commit();
    std::uint64_t bytes_of(penstock_range range) const;

    TemporaryDirectory scratch{aio::quick_temporary_path()};
    std::vector<penstock_object> objects;
    std::vector<std::string> directories{directory()};
    penstock_store* store = nullptr;
    penstock_error error{};
    penstock_result result = sized<penstock_result>();
    std::string message;  // of the last result

   private:
    mutable std::vector<const char*> names_;
};

// An enumeration with a number that is none of its own, as C lets a caller make it.
template <typename Enumeration>
void fill_with(Enumeration& enumeration, int number) {
    std::memcpy(&enumeration, &number, sizeof enumeration);
}

inline penstock_memory memory_of(const aio::ScratchMemory& memory) {
    return {.data = memory.data(), .bytes = memory.span().size(), .lease = nullptr};
}

// The first two objects of a CCaller, whole.
inline constexpr penstock_range weights{.object = 0, .first_tile = 0, .tile_count = 0};
inline constexpr penstock_range states{.object = 1, .first_tile = 0, .tile_count = 0};

}  // namespace penstock::testing

// What a call that names `error` must answer: the status, and a word of the message. A macro, so that a failure names
// its line.
#define EXPECT_REFUSED(wanted, word, call)                                                                   \
    do {                                                                                                     \
        penstock_error error{};                                                                              \
        EXPECT_EQ(call, wanted) << error.message;                                                            \
        EXPECT_EQ(error.status, wanted);                                                                     \
        EXPECT_NE(std::string(error.message).find(word), std::string::npos) << "it says: " << error.message; \
    } while (false)
