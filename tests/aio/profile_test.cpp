#include "aio/profile.h"
#include "aio/words/error.h"

#include "tests/aio/fakes/scratch.h"
#include "tests/refusal.h"
#include "tests/swap/directory/mounts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace penstock::aio {
namespace {

constexpr std::uint64_t mib = 1U << 20;

class ProfileTest : public ::testing::Test {
   protected:
    std::string directory() const { return scratch_.file(""); }
    std::string path() const { return scratch_.file(profile_name); }
    void put(const std::string& text) const { std::ofstream(path(), std::ios::binary) << text; }

    // The written default profile with one key changed, or without it when `value` is discarded.
    std::string refusal(const std::string& key, const std::string& value) const {
        write_profile(path(), {});
        std::ifstream file(path());
        auto json = nlohmann::ordered_json::parse(file);
        if (value.empty()) {
            json.erase(key);
        } else {
            json[key] = nlohmann::ordered_json::parse(value);
        }
        put(json.dump());
        return refusal();
    }
    std::string refusal() const {
        std::string words = refusal_of(ExitCode::usage, [&] { find_profile(directory()); });
        if (words == "accepted") return words;
        expect_in(profile_name, words);
        expect_in("penstock bench io --tune", words);
        return words;
    }
    static void expect_in(const std::string& part, const std::string& message) {
        EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
    }

    TemporaryDirectory scratch_;
};

TEST_F(ProfileTest, IsReadAsItWasWritten) {
    const DeviceProfile written{.made = "2026-11-21T10:00:00Z",
                                .machine = "Linux 6.18, \"ext4\" on /dev/vda",
                                .block_bytes = 2 * mib,
                                .read_in_flight_bytes = 4 * mib,
                                .write_in_flight_bytes = 16 * mib,
                                .read_bytes_per_second = 4.25e9,
                                .overwrite_bytes_per_second = 1.0 / 3,
                                .first_write_bytes_per_second = {},
                                .sustained_write_bytes_per_second = 1.5e9,
                                .write_cache_bytes = 123'456'789'012};
    write_profile(path(), written);
    const auto found = find_profile(directory());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->path, std::filesystem::canonical(path()).string());
    EXPECT_EQ(found->profile.made, written.made);
    EXPECT_EQ(found->profile.machine, written.machine);
    EXPECT_EQ(found->profile.block_bytes, written.block_bytes);
    EXPECT_EQ(found->profile.read_in_flight_bytes, written.read_in_flight_bytes);
    EXPECT_EQ(found->profile.write_in_flight_bytes, written.write_in_flight_bytes);
    EXPECT_EQ(found->profile.read_bytes_per_second, written.read_bytes_per_second);
    EXPECT_EQ(found->profile.overwrite_bytes_per_second, written.overwrite_bytes_per_second);
    EXPECT_EQ(found->profile.first_write_bytes_per_second, std::nullopt);
    EXPECT_EQ(found->profile.sustained_write_bytes_per_second, written.sustained_write_bytes_per_second);
    EXPECT_EQ(found->profile.write_cache_bytes, written.write_cache_bytes);
}

TEST_F(ProfileTest, ReplacesAnOlderOneAndLeavesNothingElse) {
    write_profile(path(), {.made = "first"});
    write_profile(path(), {.made = "second"});
    EXPECT_EQ(find_profile(directory())->profile.made, "second");
    const std::filesystem::directory_iterator begin(directory()), end;
    EXPECT_EQ(std::distance(begin, end), 1);
}

TEST_F(ProfileTest, WriteThatFailsNamesTheFileAndLeavesNoPart) {
    try {
        write_profile(scratch_.file("no such directory/") + profile_name, {});
        FAIL() << "written";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::storage);
        expect_in("no such directory", error.what());
    }
    std::filesystem::create_directory(path());  // cannot be replaced by a file
    EXPECT_THROW(write_profile(path(), {}), Error);
    const std::filesystem::directory_iterator begin(directory()), end;
    EXPECT_EQ(std::distance(begin, end), 1);
}

TEST_F(ProfileTest, PlansCountOnTheSustainedRateWhereItIsKnown) {
    DeviceProfile profile;
    EXPECT_EQ(profile.planned_write_bytes_per_second(), std::nullopt);
    profile.overwrite_bytes_per_second = 4e9;
    EXPECT_EQ(profile.planned_write_bytes_per_second(), 4e9);
    profile.sustained_write_bytes_per_second = 1e9;
    EXPECT_EQ(profile.planned_write_bytes_per_second(), 1e9);
}

// That is told by who must use the folder, and named as what it is.
TEST_F(ProfileTest, IsNotFoundInAFolderThatMayNotBeLookedInto) {
    const std::string closed = scratch_.file("closed");
    std::filesystem::create_directory(closed);
    ASSERT_EQ(::chmod(closed.c_str(), 0), 0);
    ASSERT_EQ(::chmod(scratch_.path().c_str(), 0755), 0);
    const auto look_as_nobody = [&] {
        constexpr uid_t nobody = 65534;
        if (::geteuid() == 0 && ::setresuid(nobody, nobody, nobody) != 0) std::_Exit(2);
        try {
            std::_Exit(find_profile(closed) ? 1 : 7);
        } catch (const Error& error) {
            std::fprintf(stderr, "%s\n", error.what());
            std::_Exit(3);
        }
    };
    EXPECT_EXIT(look_as_nobody(), ::testing::ExitedWithCode(7), "");
}

TEST_F(ProfileTest, IsFoundFromDirectoriesBelowThatNeedNotExist) {
    EXPECT_FALSE(find_profile(scratch_.file("store/0")));
    write_profile(path(), {.made = "above"});
    EXPECT_EQ(find_profile(scratch_.file("store/0"))->profile.made, "above");
    std::filesystem::create_directories(scratch_.file("store/0"));
    EXPECT_EQ(find_profile(scratch_.file("store/0"))->profile.made, "above");
    write_profile(scratch_.file("store/") + profile_name, {.made = "nearer"});
    EXPECT_EQ(find_profile(scratch_.file("store/0"))->profile.made, "nearer");
}

TEST_F(ProfileTest, IsLookedForWhereALinkLeads) {
    std::filesystem::create_directories(scratch_.file("disk/store"));
    std::filesystem::create_directories(scratch_.file("elsewhere"));
    std::filesystem::create_directory_symlink(scratch_.file("disk/store"), scratch_.file("elsewhere/link"));
    write_profile(scratch_.file("disk/") + profile_name, {.made = "of the disk"});
    write_profile(scratch_.file("elsewhere/") + profile_name, {.made = "of the link"});
    EXPECT_EQ(find_profile(scratch_.file("elsewhere/link"))->profile.made, "of the disk");
    EXPECT_EQ(find_profile(scratch_.file("elsewhere/link/new"))->profile.made, "of the disk");
}

TEST_F(ProfileTest, OfAnotherFileSystemIsNotTaken) {
    write_profile(path(), {});
    const std::string mount_point = scratch_.file("other");
    std::filesystem::create_directory(mount_point);
    ASSERT_TRUE(find_profile(mount_point));
    const auto outcome = testing::run_with_mounts([&] { return testing::mount_tmpfs(mount_point, mib); },
                                                  [&] { return find_profile(mount_point) ? "taken" : "passed over"; });
    if (!outcome.allowed) GTEST_SKIP() << "nobody may mount here";
    EXPECT_EQ(outcome.text, "passed over");
}

TEST_F(ProfileTest, WithMissingOrUnknownKeysIsRefused) {
    for (const char* key : {"version", "made", "machine", "block_bytes", "read_in_flight_bytes",
                            "write_in_flight_bytes", "read_bytes_per_second", "overwrite_bytes_per_second",
                            "first_write_bytes_per_second", "sustained_write_bytes_per_second", "write_cache_bytes"}) {
        expect_in(std::string("key '") + key + "' is missing", refusal(key, ""));
    }
    expect_in("key 'colour' is unknown", refusal("colour", "1"));
    expect_in("key 'version' is 2; this program knows 1", refusal("version", "2"));
}

TEST_F(ProfileTest, WithValuesThatNoIoCanHaveIsRefused) {
    expect_in("'block_bytes' is 3145728; expected a power of two", refusal("block_bytes", "3145728"));
    expect_in("'block_bytes' is 2048", refusal("block_bytes", "2048"));
    expect_in("'block_bytes' is 2147483648", refusal("block_bytes", "2147483648"));
    expect_in("'block_bytes' is \"1MiB\"", refusal("block_bytes", "\"1MiB\""));
    expect_in("'read_in_flight_bytes' is 524288", refusal("read_in_flight_bytes", "524288"));
    expect_in("'write_in_flight_bytes' is -1", refusal("write_in_flight_bytes", "-1"));
    expect_in("'read_bytes_per_second' is 0", refusal("read_bytes_per_second", "0"));
    expect_in("'sustained_write_bytes_per_second' is \"fast\"",
              refusal("sustained_write_bytes_per_second", "\"fast\""));
    expect_in("'write_cache_bytes' is 0.5", refusal("write_cache_bytes", "0.5"));
    expect_in("'made' is 5", refusal("made", "5"));
}

TEST_F(ProfileTest, ThatIsNoJsonIsRefused) {
    for (const char* text : {"", "[]", "{", "{}trailing", "\0\0"}) {
        put(text);
        EXPECT_NE(refusal(), "accepted") << text;
    }
}

// Found by fuzz_profile: values nested this deep, well-formed, exhausted the stack.
TEST_F(ProfileTest, WithNestedValuesIsRefusedHoweverDeepTheyAre) {
    for (const std::size_t depth : {1U, 2U, 30'000U}) {
        put("{\"version\": " + std::string(depth, '[') + std::string(depth, ']') + "}");
        expect_in("a value with values in it", refusal());
        put("{\"version\": 1, \"made\": " + std::string(depth, '['));  // nothing closes them
        expect_in("a value with values in it", refusal());
    }
    put("[[1]]");
    expect_in("a value with values in it", refusal());
}

TEST_F(ProfileTest, ThatIsTooLongOrNoFileIsRefusedWithoutReadingIt) {
    put(std::string((64U << 10) + 1, ' '));
    expect_in("longer than 65536 bytes", refusal());
    std::filesystem::remove(path());
    ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
    expect_in("no regular file", refusal());
    std::filesystem::remove(path());
    std::filesystem::create_directory(path());
    expect_in("no regular file", refusal());
}

TEST_F(ProfileTest, ThatCannotBeLookedAtIsRefused) {
    std::filesystem::create_symlink(profile_name, path());  // leads to itself
    expect_in("ELOOP", refusal());
}

// What others may have put there is advice of theirs.
class ForeignProfile : public ProfileTest {
   protected:
    // What is found from the directory below, and what is noted.
    std::string found(const std::string& note) {
        std::vector<std::string> notes;
        const auto profile = find_profile(scratch_.file("below"), &notes);
        EXPECT_EQ(notes.size(), note.empty() ? 0U : 1U);
        for (const std::string& line : notes) expect_in(note, line), expect_in(profile_name, line);
        return profile ? profile->profile.made : "none";
    }
    void give_to(unsigned user) const { ASSERT_EQ(::chown(path().c_str(), user, user), 0); }
};

TEST_F(ForeignProfile, OfAnotherUserIsPassedOverWithANote) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
    write_profile(path(), {.made = "theirs"});
    EXPECT_EQ(found(""), "theirs");
    give_to(12345);
    EXPECT_EQ(found("another user (12345)"), "none");
    put("no profile at all");
    EXPECT_EQ(found("another user (12345)"), "none");
    std::filesystem::remove(path());
    std::filesystem::create_symlink(profile_name, path());  // leads to itself
    ASSERT_EQ(::lchown(path().c_str(), 12345, 12345), 0);
    EXPECT_EQ(found("another user"), "none");
}

TEST_F(ForeignProfile, ThatOthersMayWriteOrReplaceIsPassedOverWithANote) {
    write_profile(path(), {.made = "ours"});
    ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
    EXPECT_EQ(found("everybody may write to it"), "none");
    ASSERT_EQ(::chmod(path().c_str(), 0644), 0);
    ASSERT_EQ(::chmod(directory().c_str(), 0777), 0);
    EXPECT_EQ(found("everybody may replace it"), "none");
    ASSERT_EQ(::chmod(directory().c_str(), 01777), 0);
    EXPECT_EQ(found(""), "ours");
}

// The next one above is looked for.
TEST_F(ForeignProfile, DoesNotHideAnother) {
    std::filesystem::create_directory(scratch_.file("below"));
    write_profile(path(), {.made = "above"});
    write_profile(scratch_.file("below/") + profile_name, {.made = "below"});
    ASSERT_EQ(::chmod(scratch_.file("below").c_str(), 0777), 0);
    EXPECT_EQ(found("everybody may replace it"), "above");
}

TEST_F(ForeignProfile, OfRootThatIsNoGoodIsPassedOverWithANote) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root has files of root's";
    put("no profile at all");
    ASSERT_EQ(::chmod(directory().c_str(), 0755), 0);
    const auto look_as_another = [&] {
        if (::setresuid(12345, 12345, 12345) != 0) std::_Exit(2);
        std::vector<std::string> notes;
        const bool none = !find_profile(directory(), &notes);
        std::fprintf(stderr, "%s\n", notes.empty() ? "no note" : notes[0].c_str());
        std::_Exit(none ? 7 : 1);
    };
    EXPECT_EXIT(look_as_another(), ::testing::ExitedWithCode(7), "passed over: .* is no JSON object");
}

TEST_F(ProfileTest, LimitsOfTheDefaultProfileAreTheDefaultLimits) {
    const InFlightLimits limits = in_flight_limits({});
    const InFlightLimits usual;
    EXPECT_EQ(limits.read_bytes, usual.read_bytes);
    EXPECT_EQ(limits.prefetch_bytes, usual.prefetch_bytes);
    EXPECT_EQ(limits.write_bytes, usual.write_bytes);
    EXPECT_EQ(limits.write_back_bytes, usual.write_back_bytes);
    EXPECT_EQ(limits.throttled_bytes, usual.throttled_bytes);
    EXPECT_EQ(limits.scrub_bytes, usual.scrub_bytes);
}

TEST_F(ProfileTest, LimitsHoldABlockEachAndDoNotContradictEachOther) {
    for (std::uint64_t block = 4096; block <= 64 * mib; block *= 4) {
        for (std::uint64_t factor : {1, 2, 3, 5, 8, 100}) {
            const DeviceProfile profile{.block_bytes = static_cast<std::uint32_t>(block),
                                        .read_in_flight_bytes = block * factor + 1,
                                        .write_in_flight_bytes = block * factor + 1};
            const InFlightLimits limits = in_flight_limits(profile);
            for (const std::uint64_t bound : {limits.read_bytes, limits.prefetch_bytes, limits.write_bytes,
                                              limits.write_back_bytes, limits.throttled_bytes, limits.scrub_bytes}) {
                EXPECT_GE(bound, block) << block << " x " << factor;
            }
            EXPECT_LE(limits.prefetch_bytes + limits.scrub_bytes, limits.read_bytes) << block << " x " << factor;
            EXPECT_LE(limits.throttled_bytes, limits.write_back_bytes) << block << " x " << factor;
            EXPECT_LE(limits.write_back_bytes, limits.write_bytes) << block << " x " << factor;
            EXPECT_LE(limits.read_bytes, std::max(profile.read_in_flight_bytes, 2 * block));
            EXPECT_EQ(limits.write_back_bytes, profile.write_in_flight_bytes);
        }
    }
}

}  // namespace
}  // namespace penstock::aio
