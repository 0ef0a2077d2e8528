#include "tests/refusal.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/store/open_store.h"
#include "tests/swap/hashing/hashed_by.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace penstock::testing {
namespace {

class SeveralDevicesTest : public ::testing::TestWithParam<HashedBy> {
   protected:
    using Directories = std::vector<store::StoreDirectory*>;
    std::unique_ptr<store::TensorStore> create(const Directories& directories) {
        return store::TensorStore::create(
            io, directories,
            {.objects = Exercise::objects(), .caching = aio::Caching::direct, .hashers = hashers.get()});
    }
    std::string refusal_to_open(const Directories& directories) {
        return refusal_of(ExitCode::storage,
                          [&] { store::TensorStore::open(io, directories, {.hashers = hashers.get()}); });
    }

    TemporaryDirectory scratch;
    store::StoreDirectory a{scratch.file("a"), "test"};
    store::StoreDirectory b{scratch.file("b"), "test"};
    store::StoreDirectory c{scratch.file("c"), "test"};
    store::StoreDirectory unused{scratch.file("unused"), "test"};
    PowerDevice device{1};
    aio::Io io{device.backend(), {}};
    std::unique_ptr<store::TileHashers> hashers = hashers_of(GetParam(), io);
    Exercise exercise{7};
};

TEST_P(SeveralDevicesTest, TilesLieOnAllAndEachIsFlushedBeforeTheManifest) {
    auto store = create({&a, &b, &c});
    std::vector<std::string> log;
    device.hook = [&](const aio::Attempt& attempt, const std::string& path) -> std::optional<std::int32_t> {
        if (attempt.kind != aio::IoKind::read)
            log.push_back(to_string(attempt.kind) + std::string(" ") + std::filesystem::path(path).filename().string());
        return std::nullopt;
    };
    ASSERT_FALSE(exercise.write(io, *store, 0));
    log.clear();
    ASSERT_FALSE(commit(io, *store, {{"generation", "0"}}));
    EXPECT_EQ(log, (std::vector<std::string>{"flush data", "flush data", "flush data", "write manifest.0",
                                             "write manifest.0"}));
    store = nullptr;
    store = store::TensorStore::open(io, {&a, &b, &c}, {.hashers = hashers.get()});
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
    EXPECT_EQ(store->location({0, 0}).path, a.path() + "/data");
    EXPECT_EQ(store->location({0, 1}).path, b.path() + "/data");
    EXPECT_EQ(store->location({0, 2}).path, c.path() + "/data");
}

TEST_P(SeveralDevicesTest, AFailedFlushOfAnyOneStopsTheCommit) {
    const auto store = create({&a, &b, &c});
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    device.hook = [&](const aio::Attempt& attempt, const std::string& path) {
        return attempt.kind == aio::IoKind::flush && path == c.path() + "/data" ? std::optional<std::int32_t>(-EIO)
                                                                                : std::nullopt;
    };
    const auto error = exercise.advance(io, *store, 1);
    ASSERT_TRUE(error);
    EXPECT_NE(error->message.find(c.path() + "/data"), std::string::npos) << error->message;
    EXPECT_EQ(store->generation(), 0U);
}

// Empty, as the place of a drive that is not mounted; or not even there.
TEST_P(SeveralDevicesTest, ADriveThatIsGoneIsRefusedWithWhatHelpsAgainstItsLoss) {
    auto store = create({&a, &b, &c});
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    store = nullptr;
    const std::string helps = store::library_remedies()->of_loss(a.path());
    const std::string text = refusal_to_open({&a, &b, &unused});
    EXPECT_NE(text.find("its drive is not mounted there"), std::string::npos) << text;
    EXPECT_NE(text.find(helps), std::string::npos) << text;
}

TEST(SeveralDevices, ADirectoryThatCannotBeMadeIsRefusedWithWhatHelpsAgainstTheLossOfItsDrive) {
    const TemporaryDirectory scratch;
    const std::vector<std::string> paths = {scratch / "a", scratch / "b"};
    const auto refusal = [&] { return refusal_of(ExitCode::storage, [&] { store::OpenStore(paths, "test"); }); };
    std::filesystem::create_symlink(scratch / "none/b", paths[1]);
    const std::string helps = store::library_remedies()->of_loss(paths[0]);
    EXPECT_EQ(refusal().find(helps), std::string::npos) << "there is no store yet";
    std::filesystem::remove(paths[1]);
    {
        store::OpenStore open(paths, "test");
        open.start_io({});
        store::TensorStore& store = open.create({.objects = Exercise::objects()});
        ASSERT_FALSE(Exercise(7).advance(open.io(), store, 0));
    }
    std::filesystem::rename(paths[1], scratch / "elsewhere");
    std::filesystem::create_symlink(scratch / "none/b", paths[1]);
    EXPECT_NE(refusal().find(helps), std::string::npos) << refusal();
}

TEST_P(SeveralDevicesTest, AnotherOrderOrNumberIsRefused) {
    ASSERT_FALSE(exercise.advance(io, *create({&a, &b, &c}), 0));
    EXPECT_NE(refusal_to_open({&b, &a, &c}).find(b.path()), std::string::npos);
    EXPECT_NE(refusal_to_open({&a, &c, &b}).find(c.path() + " is device 2 of 3"), std::string::npos)
        << refusal_to_open({&a, &c, &b});
    EXPECT_NE(refusal_to_open({&a, &b}).find(a.path() + " is device 0 of 3"), std::string::npos)
        << refusal_to_open({&a, &b});
    EXPECT_NE(refusal_to_open({&a, &b, &unused}).find(unused.path()), std::string::npos);
    EXPECT_EQ(refusal_to_open({&a, &b, &c}), "accepted");
}

TEST_P(SeveralDevicesTest, NoStoreIsMadeOverADeviceOfAnother) {
    ASSERT_FALSE(exercise.advance(io, *create({&a, &b}), 0));
    EXPECT_THROW(create({&unused, &b}), Error);
    EXPECT_THROW(create({&b, &unused}), Error);
    EXPECT_THROW(create({&a, &b}), Error);
    EXPECT_FALSE(unused.role());
    const auto store = store::TensorStore::open(io, {&a, &b}, {.hashers = hashers.get()});
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
}

TEST_P(SeveralDevicesTest, AnInterruptedCreationIsMadeAgain) {
    create({&a, &b}).reset();
    ASSERT_FALSE(exercise.advance(io, *create({&a, &b}), 0));
    const auto store = store::TensorStore::open(io, {&a, &b}, {.hashers = hashers.get()});
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
}

INSTANTIATE_TEST_SUITE_P(HashedBy, SeveralDevicesTest, anybody(), name_of_hashers);

}  // namespace
}  // namespace penstock::testing
