// The verbs of `penstock ckpt` but scrub.
#include "tests/trainer/ckpt/ckpt_rig.h"

#include "aio/words/error.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/snapshot_list.h"
#include "swap/snapshot/snapshot_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <sstream>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// ---------------------------------------------------------------- what is waited for

// Ends what is waited for with the first word about it.
class Telling final : public std::stringbuf {
   public:
    // The file as the kernel has it of a process that was killed within a write.
    explicit Telling(const std::string& file) : held_(::open(file.c_str(), O_RDWR | O_CLOEXEC)) {
        EXPECT_EQ(::flock(held_.get(), LOCK_EX | LOCK_NB), 0);
    }
    std::streamsize xsputn(const char* text, std::streamsize count) override {
        held_ = store::Descriptor();
        return std::stringbuf::xsputn(text, count);
    }

   private:
    store::Descriptor held_;
};

TEST_F(CkptTest, WhatAKilledProcessHasUnderWayIsWaitedForAndNotInSilence) {
    for (const char* verb : {"verify", "scrub", "keep"}) {
        SCOPED_TRACE(verb);
        Telling telling(path + "/manifest.1");
        std::ostream errors(&telling);
        std::vector<std::string> arguments = {verb, path};
        if (arguments[0] == "keep") arguments.emplace_back("one");
        ckpt_telling(arguments, errors);
        EXPECT_TRUE(contains(telling.str(), "waiting until")) << telling.str();
        EXPECT_TRUE(contains(telling.str(), path + "/manifest.1")) << telling.str();
    }
    Telling telling(path + "/kept/one/data");
    std::ostream errors(&telling);
    ckpt_telling({"rm", path, "one"}, errors);
    EXPECT_TRUE(contains(telling.str(), path + "/kept/one/data")) << telling.str();
}

// ---------------------------------------------------------------- ls

TEST_F(CkptTest, LsTellsOfTheStoreAndItsSnapshots) {
    ASSERT_EQ(ckpt({"keep", path, "early"}).code, 0);
    go_on({0});
    const CkptEnded ended = ckpt({"ls", path, "--json"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    const json object = ended.object();
    const json& store = object["store"];
    EXPECT_EQ(store["path"], path);
    EXPECT_EQ(store["generation"], 2);
    EXPECT_EQ(store["step"], 7);
    EXPECT_EQ(store["bytes"], 50'000 + 150'001 + 3 + 9000);
    EXPECT_GE(store["reserved_bytes"], 2 * 209'004);
    EXPECT_EQ(store["objects"], 4);
    EXPECT_EQ(store["devices"], 1);
    EXPECT_EQ(store["job"], "test");
    EXPECT_TRUE(store["in_use_by"].is_null());
    EXPECT_TRUE(store["problems"].empty());
    EXPECT_GT(store["time_s"], 1'700'000'000);
    ASSERT_EQ(object["kept"].size(), 1U);
    const json& kept = object["kept"][0];
    EXPECT_EQ(kept["name"], "early");
    EXPECT_EQ(kept["path"], path + "/kept/early");
    EXPECT_EQ(kept["generation"], 1);
    EXPECT_EQ(kept["step"], 2);
    EXPECT_EQ(kept["complete"], true);
    EXPECT_EQ(kept["origin"], store["uuid"]);
    const std::string text = ckpt({"ls", path}).output;
    EXPECT_TRUE(contains(text, "generation 2, step 7, committed 20")) << text;
    EXPECT_TRUE(contains(text, "not in use")) << text;
    EXPECT_TRUE(contains(text, "early  2     1")) << text;
}

TEST_F(CkptTest, LsWorksBesideTheTrainingAndChangesNothing) {
    const store::StoreDirectory training(path, "test");
    const auto state = [&] {
        std::string all;
        for (const auto& entry : fs::recursive_directory_iterator(path)) {
            std::ifstream file(entry.path(), std::ios::binary);
            all += entry.path().string() + std::string(std::istreambuf_iterator<char>(file), {});
        }
        return all;
    };
    const std::string before = state();
    const CkptEnded ended = ckpt({"ls", path, "--json"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(ended.object()["store"]["generation"], 1);
    EXPECT_EQ(ended.object()["store"]["in_use_by"]["pid"], ::getpid());
    EXPECT_TRUE(contains(ckpt({"ls", path}).output, fmt::format("in use by this process, {} on", ::getpid())));
    EXPECT_EQ(ckpt({"show", path}).code, 0);
    EXPECT_EQ(state(), before);
}

TEST_F(CkptTest, LsTellsOfDamagedManifestsAndUnfinishedSnapshots) {
    {
        std::fstream file(path + "/manifest.1", std::ios::in | std::ios::out | std::ios::binary);
        file << "rubbish";
    }
    fs::create_directory(path + "/kept");
    { const store::StoreDirectory begun(path + "/kept/half", "test"); }
    const json object = ckpt({"ls", path, "--json"}).object();
    EXPECT_EQ(object["store"]["generation"], 1);
    ASSERT_EQ(object["store"]["problems"].size(), 1U);
    EXPECT_TRUE(contains(object["store"]["problems"][0], "manifest.1 at offset 0"));
    EXPECT_EQ(object["kept"][0]["complete"], false);
    EXPECT_TRUE(contains(object["kept"][0]["problem"], "unfinished"));
}

TEST_F(CkptTest, LsOfAFolderOfSnapshotsListsThem) {
    const std::string folder = scratch.file("archive");
    ASSERT_EQ(ckpt({"keep", path, "a", "--to", folder}).code, 0);
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"ls", folder, "--json"},
          std::vector<std::string>{"ls", path, "--kept", folder, "--json"}}) {
        const json object = ckpt(arguments).object();
        EXPECT_EQ(object["store"].is_null(), arguments[1] == folder);
        ASSERT_EQ(object["kept"].size(), 1U);
        EXPECT_EQ(object["kept"][0]["path"], folder + "/a");
    }
    const json snapshot = ckpt({"ls", folder + "/a", "--json"}).object();
    EXPECT_EQ(snapshot["store"]["generation"], 0);
}

TEST_F(CkptTest, WhatIsNoStoreIsRefusedByName) {
    fs::create_directory(scratch.file("empty"));
    for (const char* verb : {"ls", "show", "verify", "scrub"}) {
        const CkptEnded missing = ckpt({verb, scratch.file("nothing")});
        EXPECT_EQ(missing.code, 2) << verb;
        EXPECT_TRUE(contains(missing.errors, scratch.file("nothing"))) << missing.errors;
        const CkptEnded empty = ckpt({verb, scratch.file("empty")});
        EXPECT_EQ(empty.code, 4) << verb;
        EXPECT_TRUE(contains(empty.errors, scratch.file("empty"))) << empty.errors;
    }
    EXPECT_EQ(ckpt({}).code, 2);
    EXPECT_EQ(ckpt({"ls"}).code, 2);
    EXPECT_EQ(ckpt({"keep", path}).code, 2);
    EXPECT_EQ(ckpt({"ls", path, "extra"}).code, 2);
}

// ---------------------------------------------------------------- show

TEST_F(CkptTest, ShowTellsOfObjectsTilesAndClientState) {
    go_on({0});
    const json object = ckpt({"show", path, "--json"}).object();
    EXPECT_EQ(object["generation"], 2);
    EXPECT_EQ(object["slots"], 2);
    EXPECT_EQ(object["shares"], json::array({1}));
    EXPECT_EQ(object["client"]["step"], "7");
    EXPECT_EQ(object["client"]["random"]["hex"], "00ff01");
    EXPECT_EQ(object["client"]["random"]["bytes"], 3);
    EXPECT_TRUE(object["origin"].is_null());
    ASSERT_EQ(object["objects"].size(), 4U);
    const json& weights = object["objects"][0];
    EXPECT_EQ(weights["name"], "a.weights");
    EXPECT_EQ(weights["bytes"], 50'000);
    EXPECT_EQ(weights["tile_bytes"], 8192);
    ASSERT_EQ(weights["tiles"].size(), 7U);
    EXPECT_EQ(weights["tiles"][0]["generation"], 2);
    EXPECT_EQ(weights["tiles"][0]["slot"], 0);
    EXPECT_EQ(weights["tiles"][0]["hash"].get<std::string>().size(), 32U);
    EXPECT_EQ(object["objects"][1]["tiles"][0]["generation"], 1);
    const std::string text = ckpt({"show", path}).output;
    EXPECT_TRUE(contains(text, "50.00 kB   7      7        8.19 kB   a.weights")) << text;
    EXPECT_TRUE(contains(text, "random        <3 bytes>")) << text;
}

TEST_F(CkptTest, ShowFindsASnapshotByNameStepOrPath) {
    ASSERT_EQ(ckpt({"keep", path, "early"}).code, 0);
    ASSERT_EQ(ckpt({"keep", path, "step-40"}).code, 0);
    go_on({0});
    ASSERT_EQ(ckpt({"keep", path, "late"}).code, 0);
    const auto shown = [&](const std::string& name) {
        const CkptEnded ended = ckpt({"show", path, name, "--json"});
        return ended.code == 0 ? ended.object()["path"].get<std::string>() : ended.errors;
    };
    EXPECT_EQ(shown("early"), path + "/kept/early");
    EXPECT_EQ(shown("7"), path + "/kept/late");
    EXPECT_EQ(shown(path + "/kept/late"), path + "/kept/late");
    EXPECT_EQ(ckpt({"show", path, "late", "--json"}).object()["origin"]["generation"], 2);
    const CkptEnded unknown = ckpt({"show", path, "9"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_TRUE(contains(unknown.errors, "no snapshot '9'; there are: ")) << unknown.errors;
    EXPECT_TRUE(contains(unknown.errors, "early")) << unknown.errors;
}

// ---------------------------------------------------------------- verify

TEST_F(CkptTest, VerifyReadsAllAndSaysHowFast) {
    const CkptEnded ended = ckpt({"verify", path, "--json"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    const json object = ended.object();
    EXPECT_EQ(object["tiles"], 7 + 10 + 1 + 3);
    EXPECT_EQ(object["generation"], 1);
    EXPECT_EQ(object["step"], 2);
    EXPECT_GE(object["bytes"], 209'004);
    EXPECT_GT(object["gb_per_s"], 0);
    EXPECT_TRUE(object["damaged"].empty());
    EXPECT_TRUE(contains(ended.errors, "verify [####################] 100 %")) << ended.errors;
    EXPECT_TRUE(contains(ckpt({"verify", path}).output, "all are as they were written"));
}

TEST_F(CkptTest, VerifyNamesEachDamagedTileAndEndsWithFour) {
    damage(path, {1, 3});
    damage(path, {2, 0});
    const CkptEnded ended = ckpt({"verify", path, "--json"});
    EXPECT_EQ(ended.code, 4);
    const json damaged = ended.object()["damaged"];
    ASSERT_EQ(damaged.size(), 2U);
    EXPECT_EQ(damaged[0]["object"], "a.states");
    EXPECT_EQ(damaged[0]["tile"], 3);
    EXPECT_EQ(damaged[0]["path"], path + "/data");
    EXPECT_EQ(damaged[0]["offset_bytes"], location(path, {1, 3}).offset_bytes);
    EXPECT_EQ(damaged[1]["object"], "tiny");
    const CkptEnded text = ckpt({"verify", path});
    EXPECT_EQ(text.code, 4);
    EXPECT_TRUE(contains(text.output, "2 are damaged")) << text.output;
    EXPECT_TRUE(contains(text.output, "object 'a.states', tile 3 in " + path + "/data")) << text.output;
}

TEST_F(CkptTest, AStoreInUseIsNotVerifiedButItsSnapshotsAre) {
    ASSERT_EQ(ckpt({"keep", path, "early"}).code, 0);
    const store::StoreDirectory training(path, "test");
    const CkptEnded refused = ckpt({"verify", path});
    EXPECT_EQ(refused.code, 4);
    EXPECT_TRUE(contains(refused.errors, fmt::format("in use by this process, {} on ", ::getpid()))) << refused.errors;
    EXPECT_TRUE(contains(refused.errors, "ckpt verify " + path + " NAME")) << refused.errors;
    EXPECT_EQ(ckpt({"verify", path, "early"}).code, 0);
    EXPECT_EQ(ckpt({"verify", path, "2"}).code, 0);
    EXPECT_EQ(ckpt({"scrub", path}).code, 4);
    damage(path + "/kept/early", {0, 6});
    EXPECT_EQ(ckpt({"verify", path, "early"}).code, 4);
}

TEST_F(CkptTest, AStoreOverSeveralDevicesIsVerifiedWithAllOfThem) {
    const std::string second = scratch.file("second");
    const std::string third = scratch.file("third");
    {
        store::StoreDirectory a(second, "test");
        store::StoreDirectory b(third, "test");
        aio::Io io(aio::make_thread_backend({}), {});
        const auto store =
            store::TensorStore::create(io, {&a, &b}, {.objects = MovingStore::objects(), .shares = {2, 1}});
        MovingStore moving(io, *store, 1);
        ASSERT_FALSE(moving.round());
    }
    EXPECT_EQ(ckpt({"verify", second, "--also", third}).code, 0);
    EXPECT_EQ(ckpt({"verify", second}).code, 4);
    const CkptEnded further = ckpt({"ls", third});
    EXPECT_EQ(further.code, 4);
    EXPECT_TRUE(contains(further.errors, "device 1 of a store over 2 directories")) << further.errors;
    EXPECT_EQ(ckpt({"ls", second, "--json"}).object()["store"]["devices"], 2);
    EXPECT_EQ(ckpt({"show", second, "--json"}).object()["shares"], json::array({2, 1}));
    ASSERT_EQ(ckpt({"keep", second, "one", "--also", third}).code, 0);
    EXPECT_EQ(ckpt({"verify", second, "one"}).code, 0);
}

// ---------------------------------------------------------------- keep and rm

TEST_F(CkptTest, KeepCopiesAGenerationAndRmRemovesIt) {
    const CkptEnded ended = ckpt({"keep", path, "best", "--json"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(ended.object()["path"], path + "/kept/best");
    EXPECT_EQ(ended.object()["generation"], 1);
    EXPECT_GE(ended.object()["bytes"], 209'004);
    EXPECT_TRUE(contains(ended.errors, "keep [####################] 100 %")) << ended.errors;
    {
        store::StoreDirectory directory = store::StoreDirectory::find(path + "/kept/best", store::Sharing::shared);
        aio::Io io(aio::make_thread_backend({}), {});
        const auto store = store::TensorStore::open(io, {&directory});
        EXPECT_EQ(store->kind(), store::StoreKind::snapshot);
        EXPECT_EQ(store->client().at("step"), "2");
        EXPECT_EQ(difference(io, *store, first), "");
    }
    EXPECT_EQ(fs::status(path + "/kept").permissions(), fs::perms::owner_all);
    const CkptEnded again = ckpt({"keep", path, "best"});
    EXPECT_EQ(again.code, 2);
    EXPECT_TRUE(contains(again.errors, "is there already")) << again.errors;
    EXPECT_EQ(ckpt({"verify", path, "best"}).code, 0);
    EXPECT_EQ(ckpt({"rm", path, "best", "--json"}).object()["removed"], path + "/kept/best");
    EXPECT_FALSE(fs::exists(path + "/kept/best"));
    EXPECT_EQ(ckpt({"rm", path, "best"}).code, 2);
    expect_store([&](aio::Io& io, store::TensorStore& store) { EXPECT_EQ(difference(io, store, first), ""); });
}

TEST_F(CkptTest, KeepRefusesImpossibleNamesForeignFilesAndStoresInUse) {
    for (const char* name : {"../x", ".x", "a b", ""}) EXPECT_EQ(ckpt({"keep", path, name}).code, 2) << name;
    fs::create_directories(path + "/kept/mine");
    std::ofstream(path + "/kept/mine/notes.txt") << "x";
    const CkptEnded foreign = ckpt({"keep", path, "mine"});
    EXPECT_EQ(foreign.code, 4);
    EXPECT_TRUE(contains(foreign.errors, "notes.txt")) << foreign.errors;
    EXPECT_TRUE(fs::exists(path + "/kept/mine/notes.txt"));
    const CkptEnded nowhere = ckpt({"keep", path, "a", "--to", scratch.file("no/where")});
    EXPECT_EQ(nowhere.code, 4);
    EXPECT_TRUE(contains(nowhere.errors, "no/where")) << nowhere.errors;
    const store::StoreDirectory training(path, "test");
    const CkptEnded busy = ckpt({"keep", path, "b"});
    EXPECT_EQ(busy.code, 4);
    EXPECT_TRUE(contains(busy.errors, fmt::format("kill -USR1 {}", ::getpid()))) << busy.errors;
    EXPECT_FALSE(fs::exists(path + "/kept/b"));
}

TEST_F(CkptTest, AKeepLeavesAnotherJobsSnapshotOfThatNameAlone) {
    ASSERT_EQ(ckpt({"keep", path, "best"}).code, 0);
    const std::string other = scratch.file("other");
    {
        store::StoreDirectory directory(other, "another job");
        aio::Io io(aio::make_thread_backend({}), {});
        const auto store = store::TensorStore::create(io, {&directory}, {.objects = MovingStore::objects()});
        MovingStore moving(io, *store, 2);
        EXPECT_FALSE(moving.round());
    }
    const CkptEnded refused = ckpt({"keep", other, "best", "--to", path + "/kept"});
    EXPECT_EQ(refused.code, 4);
    EXPECT_TRUE(contains(refused.errors, "belongs to job 'test'")) << refused.errors;
    EXPECT_EQ(ckpt({"verify", path + "/kept/best"}).code, 0);
}

TEST_F(CkptTest, AStepIsFirstTheSnapshotThatARunNamesSo) {
    ASSERT_EQ(ckpt({"keep", path, "best"}).code, 0);  // of the same step as the next
    const auto listed = store::list_snapshots(path + "/kept");
    ASSERT_EQ(listed.size(), 1U);
    fs::copy(path + "/kept/best", path + "/kept/step-7", fs::copy_options::recursive);
    EXPECT_EQ(ckpt({"rm", path, "7"}).code, 0);
    EXPECT_TRUE(fs::exists(path + "/kept/best"));
    EXPECT_FALSE(fs::exists(path + "/kept/step-7"));
}

TEST_F(CkptTest, AKeepOfADamagedStoreLeavesNothingBehind) {
    damage(path, {1, 3});
    const CkptEnded ended = ckpt({"keep", path, "a"});
    EXPECT_EQ(ended.code, 4);
    EXPECT_TRUE(contains(ended.errors, "'a.states', tile 3")) << ended.errors;
    EXPECT_TRUE(fs::is_empty(path + "/kept"));
}

TEST_F(CkptTest, RmRefusesLiveStores) {
    const CkptEnded ended = ckpt({"rm", path, path + "/"});
    EXPECT_EQ(ended.code, 4);
    EXPECT_TRUE(contains(ended.errors, "not a kept snapshot")) << ended.errors;
    expect_store([&](aio::Io& io, store::TensorStore& store) { EXPECT_EQ(difference(io, store, first), ""); });
}

}  // namespace
}  // namespace penstock::testing
