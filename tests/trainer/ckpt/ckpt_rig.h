// A store of two generations, and `penstock ckpt` on it, from the command line to standard output and the exit code.
#pragma once

#include "swap/store/blocking.h"
#include "tests/swap/store/moving_store.h"

#include <gtest/gtest.h>
#include <nlohmann/json_fwd.hpp>

#include <fstream>
#include <string>
#include <vector>

namespace penstock::testing {

struct CkptEnded {
    int code = -1;
    std::string output;
    std::string errors;
    nlohmann::json object() const;
};

// As main() does. `errors` takes what goes to standard error, at once.
CkptEnded ckpt(std::vector<std::string> arguments);
std::string ckpt_telling(std::vector<std::string> arguments, std::ostream& errors);

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

class CkptTest : public ::testing::Test {
   protected:
    CkptTest() : scratch(aio::quick_temporary_path()), path(scratch.file("store")) {
        store::StoreDirectory directory(path, "test");
        aio::Io io(aio::make_thread_backend(aio::BackendOptions{}), aio::IoLimits{});
        const auto store = store::TensorStore::create(io, {&directory}, {.objects = MovingStore::objects()});
        MovingStore moving(io, *store, 1);
        EXPECT_FALSE(moving.round());
        EXPECT_FALSE(moving.round());
        first = moving.committed();
    }
    // Rewrites some objects as a training that left the others frozen, and commits with binary state.
    void go_on(const std::vector<std::uint32_t>& objects) {
        store::StoreDirectory directory(path, "test");
        aio::Io io(aio::make_thread_backend(aio::BackendOptions{}), aio::IoLimits{});
        const auto store = store::TensorStore::open(io, {&directory});
        aio::ScratchMemory memory(16'384);
        for (const std::uint32_t object : objects) {
            for (std::uint32_t tile = 0; tile < store->layout().tile_count(object); ++tile) {
                aio::fill_random(memory.span(), 1000 + object * 100 + tile);
                write_blocking(io, *store, {object, tile}, memory.span());
            }
        }
        store::ClientState client = store->client();
        client["step"] = "7";
        client["random"] = std::string("\x00\xff\x01", 3);
        commit_blocking(io, *store, client);
    }
    store::TileLocation location(const std::string& store_path, store::TileId tile) const {
        store::StoreDirectory directory = store::StoreDirectory::find(store_path, store::Sharing::shared);
        aio::Io io(aio::make_thread_backend(aio::BackendOptions{}), aio::IoLimits{});
        return store::TensorStore::open(io, {&directory})->location(tile);
    }
    void damage(const std::string& store_path, store::TileId tile) const {
        const store::TileLocation place = location(store_path, tile);
        std::fstream file(place.path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(place.offset_bytes));
        file << "damaged!";
    }
    // The store as it is now; also that it is whole.
    template <typename Check>
    void expect_store(const Check& check) const {
        store::StoreDirectory directory = store::StoreDirectory::find(path, store::Sharing::shared);
        aio::Io io(aio::make_thread_backend(aio::BackendOptions{}), aio::IoLimits{});
        store::OpenOptions options;  // not in braces: that breaks GCC 12 within a template
        options.verify = store::VerifyScope::all;
        const auto store = store::TensorStore::open(io, {&directory}, std::move(options));
        check(io, *store);
    }

    TemporaryDirectory scratch;
    const std::string path;
    TileSeeds first;
};

}  // namespace penstock::testing
