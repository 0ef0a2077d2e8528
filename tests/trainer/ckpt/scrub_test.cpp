// `penstock ckpt scrub`.
#include "tests/trainer/ckpt/ckpt_rig.h"

#include "swap/store/open_store.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

namespace penstock::testing {
namespace {

using nlohmann::json;

// By a scrub, as a verify says.
void expect_lock_made_anew(const std::string& path) {
    const CkptEnded refused = ckpt({"verify", path});
    EXPECT_EQ(refused.code, 4);
    EXPECT_TRUE(contains(refused.errors, "'penstock ckpt scrub " + path + "' makes it anew")) << refused.errors;
    const CkptEnded ended = ckpt({"scrub", path, "--job", "test", "--json"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(ended.object()["locks"].size(), 1U);
    EXPECT_EQ(ended.object()["whole"], true);
}

TEST_F(CkptTest, ScrubOfAWholeStoreSaysSoAndChangesNothing) {
    const CkptEnded ended = ckpt({"scrub", path, "--json"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    const json object = ended.object();
    EXPECT_EQ(object["whole"], true);
    EXPECT_EQ(object["mended"], false);
    EXPECT_EQ(object["generation"], 1);
    EXPECT_TRUE(object["manifests"].empty());
    EXPECT_TRUE(contains(ckpt({"scrub", path}).output, "all are as they were written"));
}

TEST_F(CkptTest, ScrubPutsACopyOfAManifestBack) {
    {
        std::fstream file(path + "/manifest.1", std::ios::in | std::ios::out | std::ios::binary);
        file << "rubbish";
    }
    const CkptEnded ended = ckpt({"scrub", path, "--json"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    ASSERT_EQ(ended.object()["manifests"].size(), 1U);
    EXPECT_TRUE(contains(ended.object()["manifests"][0], path + "/manifest.1 at offset 0: copy 1 was damaged"));
    EXPECT_TRUE(ckpt({"ls", path, "--json"}).object()["store"]["problems"].empty());
    EXPECT_TRUE(ckpt({"scrub", path, "--json"}).object()["manifests"].empty());
}

TEST_F(CkptTest, ScrubRestoresDamagedTilesFromSnapshotsThatStillHaveTheirBytes) {
    ASSERT_EQ(ckpt({"keep", path, "early"}).code, 0);
    go_on({1});  // what early has of object 1 is no longer right; of the others it is
    ASSERT_EQ(ckpt({"keep", path, "late"}).code, 0);
    damage(path, {0, 2});
    damage(path, {1, 4});
    damage(path + "/kept/late", {0, 2});
    const CkptEnded ended = ckpt({"scrub", path, "--json"});
    ASSERT_EQ(ended.code, 0) << ended.errors << ended.output;
    const json object = ended.object();
    EXPECT_EQ(object["mended"], true);
    EXPECT_EQ(object["generation"], 3);
    ASSERT_EQ(object["damaged"].size(), 2U);
    EXPECT_EQ(object["damaged"][0]["snapshot"], "early");
    EXPECT_EQ(object["damaged"][1]["snapshot"], "late");
    expect_store([&](aio::Io& io, store::TensorStore& store) {
        EXPECT_EQ(store.generation(), 3U);
        EXPECT_EQ(store.client().at("step"), "7");
        TileSeeds expected = first;
        for (std::uint32_t tile = 0; tile < store.layout().tile_count(1); ++tile)
            expected[store.layout().tile_index({1, tile})] = 1000 + 100 + tile;
        EXPECT_EQ(difference(io, store, expected), "");
    });
}

TEST_F(CkptTest, ScrubChangesNoTileWhenOneCannotBeMended) {
    ASSERT_EQ(ckpt({"keep", path, "early"}).code, 0);
    go_on({1});
    ASSERT_EQ(ckpt({"keep", path, "late"}).code, 0);
    damage(path, {1, 2});
    damage(path, {1, 4});
    damage(path + "/kept/late", {1, 4});  // and early has older bytes of it
    const CkptEnded ended = ckpt({"scrub", path, "--json"});
    EXPECT_EQ(ended.code, 4);
    const json object = ended.object();
    EXPECT_EQ(object["mended"], false);
    EXPECT_EQ(object["whole"], false);
    EXPECT_EQ(object["generation"], 2);
    EXPECT_EQ(object["damaged"][0]["snapshot"], "late");
    EXPECT_TRUE(object["damaged"][1]["snapshot"].is_null());
    const CkptEnded text = ckpt({"scrub", path});
    EXPECT_EQ(text.code, 4);
    EXPECT_TRUE(contains(text.output, "object 'a.states', tile 4: no kept snapshot has its bytes")) << text.output;
    EXPECT_TRUE(contains(text.output, "the newest of this model is late")) << text.output;
    // Generation 1 is still whole: a start that verifies goes back to it.
    store::StoreDirectory directory(path, "test");
    aio::Io io(aio::make_thread_backend({}), {});
    const auto store = store::TensorStore::open(io, {&directory}, {.verify = store::VerifyScope::all});
    EXPECT_EQ(store->generation(), 1U);
    EXPECT_EQ(difference(io, *store, first), "");
}

TEST_F(CkptTest, ScrubMakesALostLockAnew) {
    std::filesystem::remove(path + "/lock");
    expect_lock_made_anew(path);
    EXPECT_EQ(store::StoreDirectory(path, "test").content(), store::DirectoryContent::committed);
}

// An older manifest beside newer tiles: the store cannot be opened to be mended, and what can be done is said.
TEST_F(CkptTest, ScrubReportsWhereItMayNotMend) {
    ASSERT_EQ(ckpt({"keep", path, "best"}).code, 0);
    std::filesystem::resize_file(path + "/manifest.0", 0);  // generation 1 is in the other one
    for (std::uint32_t tile = 0; tile < 3; ++tile) damage(path, {1, tile});
    std::filesystem::remove_all(path + "/kept/none");
    const CkptEnded ended = ckpt({"scrub", path});
    EXPECT_TRUE(contains(ended.output, "3 were damaged")) << ended.output << ended.errors;
    EXPECT_TRUE(contains(ended.output, "best")) << ended.output;
}

// All that was lost is in the snapshot: one call has it again.
TEST_F(CkptTest, ScrubMendsAllAtOnceWhatASnapshotHas) {
    ASSERT_EQ(ckpt({"keep", path, "best"}).code, 0);
    const std::pair<const char*, std::function<void()>> losses[] = {
        {"emptied", [&] { std::filesystem::resize_file(path + "/data", 0); }},
        {"cut", [&] { std::filesystem::resize_file(path + "/data", 10'000); }},
        {"removed", [&] { std::filesystem::remove(path + "/data"); }},
        {"with its lock",
         [&] {
             std::filesystem::resize_file(path + "/data", 0);
             std::filesystem::resize_file(path + "/lock", 0);
         }},
        {"with a manifest",
         [&] {
             std::filesystem::remove(path + "/data");
             std::filesystem::remove(path + "/manifest.0");
         }},
    };
    for (const auto& [name, lose] : losses) {
        SCOPED_TRACE(name);
        lose();
        const CkptEnded ended = ckpt({"scrub", path, "--job", "test", "--json"});
        ASSERT_EQ(ended.code, 0) << ended.errors << ended.output;
        EXPECT_EQ(ended.object()["mended"], true);
        expect_store([&](aio::Io& io, store::TensorStore& store) { EXPECT_EQ(difference(io, store, first), ""); });
    }
}

TEST_F(CkptTest, ScrubOverSeveralDirectoriesMendsAllAtOnce) {
    const std::string one = scratch.file("one"), two = scratch.file("two");
    {
        store::OpenStore made({one, two}, "test");
        made.start_io({});
        MovingStore moving(made.io(), made.create({.objects = MovingStore::objects()}), 1);
        EXPECT_FALSE(moving.round());
        first = moving.committed();
    }
    ASSERT_EQ(ckpt({"keep", one, "best", "--also", two}).code, 0);
    for (const bool removed : {false, true}) {
        for (const char* name : {"/lock", "/data"}) {
            removed ? static_cast<void>(std::filesystem::remove(two + name))
                    : std::filesystem::resize_file(two + name, 0);
        }
        const CkptEnded ended = ckpt({"scrub", one, "--also", two, "--json"});
        ASSERT_EQ(ended.code, 0) << ended.errors << ended.output;
        EXPECT_EQ(ended.object()["mended"], true);
        store::OpenStore again({one, two}, "test");
        again.start_io({});
        EXPECT_EQ(difference(again.io(), again.open({.verify = store::VerifyScope::all}), first), "");
    }
}

TEST_F(CkptTest, ScrubMakesTheLockAnewThatIsAnotherStores) {
    const std::string other = scratch.file("other");
    {
        store::OpenStore made({other}, "test");
        made.start_io({});
        commit_blocking(made.io(), made.create({.objects = MovingStore::objects()}), {});
    }
    std::filesystem::copy_file(other + "/lock", path + "/lock", std::filesystem::copy_options::overwrite_existing);
    expect_lock_made_anew(path);
    expect_store([&](aio::Io& io, store::TensorStore& store) { EXPECT_EQ(difference(io, store, first), ""); });
}

}  // namespace
}  // namespace penstock::testing
