#include "swap/format/lock_text.h"

#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

store::LockText example() {
    store::LockText lock;
    lock.job = std::string(store::max_job_bytes, 'j');
    for (std::size_t i = 0; i < lock.uuid.size(); ++i) lock.uuid[i] = static_cast<std::byte>(i * 17);
    lock.pid = 2147483647;
    lock.host = std::string(64, 'h');
    lock.since = "2026-11-20T21:12:45Z";
    return lock;
}

// As programs wrote it before there was a check.
std::string unchecked(const store::LockText& lock) {
    std::string text = format(lock);
    text.replace(text.find("check: "), 23, std::string(23, '\n'));
    return text;
}

TEST(LockText, RoundTripsWithAndWithoutARoleAtItsLongest) {
    store::LockText lock = example();
    EXPECT_EQ(format(lock).size(), store::lock_text_bytes);
    EXPECT_EQ(store::parse_lock(format(lock)), lock);
    lock.role = store::DeviceRole{.store = lock.uuid, .device = 63, .device_count = 64};
    EXPECT_EQ(format(lock).size(), store::lock_text_bytes);
    EXPECT_EQ(store::parse_lock(format(lock)), lock);
}

TEST(LockText, WhatIsNotOursIsRefusedAndCutTextNeverThrows) {
    const std::string text = format(example());
    EXPECT_FALSE(store::parse_lock(""));
    EXPECT_FALSE(store::parse_lock("pid 12\n"));
    EXPECT_FALSE(store::parse_lock("penstock store directory, format 2\n" + text.substr(35)));
    for (std::size_t length = 0; length < text.size(); ++length) {
        const auto lock = store::parse_lock(text.substr(0, length));
        if (lock) {
            EXPECT_EQ(lock->uuid, example().uuid);
        }
    }
}

TEST(LockText, AnImpossibleRoleIsRefused) {
    const std::string text = unchecked(example());
    const auto with_role = [&](const std::string& role) {
        std::string changed = text;
        return changed.replace(changed.find("device: none"), 12, "device: " + role);
    };
    const std::string uuid = store::to_string(example().uuid);
    EXPECT_TRUE(store::parse_lock(with_role("0 of 1 in " + uuid)));
    EXPECT_FALSE(store::parse_lock(with_role("1 of 1 in " + uuid)));
    EXPECT_FALSE(store::parse_lock(with_role("0 of 65 in " + uuid)));
    EXPECT_FALSE(store::parse_lock(with_role("0 of 1 in " + uuid + "0")));
    EXPECT_FALSE(store::parse_lock(with_role("-1 of 1 in " + uuid)));
    EXPECT_FALSE(store::parse_lock(with_role("")));
}

TEST(LockText, AnUnreadableHolderIsNoReasonToGiveTheDirectoryUp) {
    std::string text = unchecked(example());
    text.replace(text.find("pid: 2147483647"), 15, "pid: 21 xyz.....");
    const auto lock = store::parse_lock(text);
    ASSERT_TRUE(lock);
    EXPECT_EQ(lock->pid, 0);
    EXPECT_EQ(lock->uuid, example().uuid);
}

TEST(LockText, AnyFlippedBitOfOneCopyIsMadeGoodByTheOther) {
    store::LockText lock = example();
    lock.role = store::DeviceRole{.store = lock.uuid, .device = 0, .device_count = 1};
    const std::string file = lock_file(lock);
    ASSERT_EQ(file.size(), store::lock_file_bytes);
    for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
        std::string flipped = file;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
        const auto found = store::parse_lock_file(flipped);
        ASSERT_TRUE(found) << bit;
        EXPECT_EQ(found->uuid, lock.uuid) << bit;
        EXPECT_EQ(found->role, lock.role) << bit;
        EXPECT_EQ(found->job, lock.job) << bit;
    }
    EXPECT_EQ(store::parse_lock_file(std::string(store::lock_text_bytes, '\0') + format(lock)), lock);
    EXPECT_EQ(store::parse_lock_file(unchecked(lock)), lock) << "an older program's file is half as long";
}

TEST(LockText, WordsThatNobodyCouldHaveWrittenAreNotShownAndNotWrittenAgain) {
    const auto with = [](const std::string& line, const std::string& other) {
        std::string text = unchecked(example());
        return text.replace(text.find(line), line.size(), other);
    };
    const std::string host = "host: " + std::string(64, 'h');
    for (const std::string& words : {host + "h", std::string("host: \x1b[2J")}) {
        const auto lock = store::parse_lock(with(host, words));
        ASSERT_TRUE(lock);
        EXPECT_EQ(lock->host, "?");
        EXPECT_EQ(format(*lock).size(), store::lock_text_bytes);
    }
    const std::string job = "job: " + std::string(200, 'j');
    EXPECT_FALSE(store::parse_lock(with(job, job + "j")));
    EXPECT_FALSE(store::parse_lock(with(job, "job: \x1b[2J")));
}

TEST(LockText, WhatAStartLeftBeforeItsEndIsKnownAndNothingElse) {
    const std::string file = lock_file(example());
    const std::string text = format(example());
    for (const std::size_t bytes : {0UL, 1UL, 17UL, 34UL, 35UL, 36UL, 99UL}) {
        EXPECT_TRUE(store::is_unfinished_lock(file.substr(0, bytes))) << bytes;
        EXPECT_TRUE(store::is_unfinished_lock(file.substr(0, bytes) + std::string(64, '\0'))) << bytes;
    }
    EXPECT_TRUE(store::is_unfinished_lock(std::string(store::lock_file_bytes, '\0')));
    EXPECT_FALSE(store::is_unfinished_lock(file));
    EXPECT_FALSE(store::is_unfinished_lock(file.substr(0, 400))) << "whose it is has been said";
    EXPECT_FALSE(store::is_unfinished_lock(text)) << "an older program's";
    EXPECT_FALSE(store::is_unfinished_lock(std::string(store::lock_text_bytes, '\0') + text)) << "one copy is whole";
    for (const char* others : {"pid 17\n", "penstock store directory, format 2\n", "\n"})
        EXPECT_FALSE(store::is_unfinished_lock(others)) << others;
}

TEST(LockText, AUuidIsReadAsItIsWritten) {
    EXPECT_EQ(store::parse_uuid(store::to_string(example().uuid)), example().uuid);
    for (const char* not_one : {"", "00112233-4455-6677-8899-aabbccddeef", "00112233x4455-6677-8899-aabbccddeeff",
                                "0011223g-4455-6677-8899-aabbccddeeff"})
        EXPECT_FALSE(store::parse_uuid(not_one)) << not_one;
}

}  // namespace
}  // namespace penstock::testing
