// What an earlier library left is read, verified and gone on with (tests/earlier), and its callers need not be compiled
// again.
#include "swap/capi/penstock.h"

#include "tests/earlier/abi.h"
#include "tests/earlier/pattern.h"
#include "tests/swap/capi/c_caller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// The store of tests/earlier/c_store.c, in a directory of the test's own.
class EarlierLibrary : public ::testing::Test {
   protected:
    static constexpr std::uint64_t weights_tile_bytes = 16'384;

    EarlierLibrary() : caller_({{"weights", 100'000, weights_tile_bytes}, {"states", 5'000, 0}}) {
        fs::copy(PENSTOCK_EARLIER "/c", caller_.scratch.path(), fs::copy_options::recursive);
        caller_.directories = {caller_.scratch.file("first"), caller_.scratch.file("second")};
    }

    penstock_status open() {
        penstock_store_options options = caller_.options();
        options.job = "earlier";
        options.mode = PENSTOCK_OPEN;
        options.verify = PENSTOCK_VERIFY_ALL;
        return caller_.open(options);
    }

    std::uint64_t generation() {
        std::uint64_t generation = 99;
        EXPECT_EQ(penstock_generation(caller_.store, &generation, nullptr), PENSTOCK_OK);
        return generation;
    }

    std::string value(const char* key) {
        const void* data = nullptr;
        std::size_t bytes = 0;
        const penstock_status found = penstock_client_get(caller_.store, key, &data, &bytes, nullptr);
        return found == PENSTOCK_OK ? std::string(static_cast<const char*>(data), bytes) : penstock_status_name(found);
    }

    // The tile's bytes are the pattern of `seed` up to the object's end, and zeros behind it.
    bool has(std::uint32_t object, std::uint32_t tile, unsigned seed) {
        const penstock_range range{.object = object, .first_tile = tile, .tile_count = 1};
        aio::ScratchMemory read(caller_.bytes_of(range));
        EXPECT_EQ(caller_.read(range, read), PENSTOCK_OK) << caller_.message;
        const std::uint64_t begin = tile * weights_tile_bytes;
        const std::uint64_t end = caller_.objects[object].bytes;
        std::vector<unsigned char> wanted(read.span().size());
        fill_pattern(wanted.data(), std::min(end - begin, std::uint64_t{wanted.size()}), begin, seed);
        return std::memcmp(read.data(), wanted.data(), wanted.size()) == 0;
    }

    CCaller caller_;
};

TEST_F(EarlierLibrary, ItsStoreIsReadAndWhole) {
    ASSERT_EQ(open(), PENSTOCK_OK) << caller_.error.message;
    for (std::size_t i = 0; penstock_note(caller_.store, i) != nullptr; ++i)
        EXPECT_EQ(std::string(penstock_note(caller_.store, i)).find("damaged"), std::string::npos)
            << penstock_note(caller_.store, i);
    EXPECT_EQ(generation(), 2U);
    EXPECT_EQ(value("step"), "3");
    EXPECT_EQ(value("position"), std::string("\0\1\2", 3));
    EXPECT_EQ(value("of the first"), "PENSTOCK_NOT_FOUND");
    for (std::uint32_t tile = 0; tile < 7; ++tile)
        EXPECT_TRUE(has(0, tile, tile >= 2 && tile < 5 ? 3 : 1)) << "weights, tile " << tile;
    EXPECT_TRUE(has(1, 0, 4)) << "states";
}

TEST_F(EarlierLibrary, ItsStoreIsGoneOnWith) {
    ASSERT_EQ(open(), PENSTOCK_OK) << caller_.error.message;
    const aio::ScratchMemory memory(weights_tile_bytes);
    fill_pattern(reinterpret_cast<unsigned char*>(memory.data()), weights_tile_bytes, weights_tile_bytes, 5);
    const penstock_range second{.object = 0, .first_tile = 1, .tile_count = 1};
    ASSERT_EQ(penstock_write(caller_.store, second, memory_of(memory), PENSTOCK_URGENCY_DEFAULT, nullptr, nullptr),
              PENSTOCK_OK);
    EXPECT_EQ(caller_.finish(), PENSTOCK_OK) << caller_.message;
    EXPECT_EQ(caller_.commit(), PENSTOCK_OK) << caller_.message;
    ASSERT_EQ(open(), PENSTOCK_OK) << caller_.error.message;
    EXPECT_EQ(generation(), 3U);
    EXPECT_EQ(value("step"), "3");
    EXPECT_TRUE(has(0, 0, 1) && has(0, 1, 5) && has(0, 2, 3) && has(1, 0, 4));
}

// Which of these the shared library exports is a case of tests/install.
TEST(EarlierLibraryAbi, EachFunctionStructureAndValueIsAsItWas) {
    EXPECT_EQ(abi_text(), text_of(PENSTOCK_SOURCE_DIR "/tests/earlier/abi.txt"));
}

}  // namespace
}  // namespace penstock::testing
