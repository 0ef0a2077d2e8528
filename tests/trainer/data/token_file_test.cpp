#include "trainer/data/token_file.h"
#include "aio/words/error.h"

#include "tests/refusal.h"
#include "tests/trainer/data/text_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

namespace penstock::trainer {
namespace {

class TokenFiles : public ::testing::Test {
   protected:
    TokenFileInfo write(const std::string& text) {
        TokenWriter writer(path_);
        writer.append(std::as_bytes(std::span(text)));
        return writer.finish();
    }

    // Rewrites the file with one change and returns the refusal.
    std::string refusal_after(std::size_t offset, const std::string& bytes) {
        std::string text = testing::read_file(path_);
        text.replace(offset, bytes.size(), bytes);
        testing::write_file(path_, text);
        return refusal();
    }

    std::string refusal() {
        std::string words = refusal_of(ExitCode::usage, [&] { TokenFile file(path_); });
        if (words != "accepted") {
            EXPECT_NE(words.find(path_), std::string::npos) << words;
        }
        return words;
    }

    TemporaryDirectory directory_;
    std::string path_ = directory_ / "t.tokens";
};

TEST_F(TokenFiles, GiveBackWhatWasWritten) {
    std::string text;
    for (int i = 0; i < 3000; ++i) text.push_back(static_cast<char>(i * 7));
    const TokenFileInfo written = write(text);
    const TokenFile file(path_);
    EXPECT_EQ(file.info().count, text.size());
    EXPECT_EQ(file.info().vocabulary, 256U);
    EXPECT_EQ(file.info().hash, written.hash);
    for (const std::size_t length : {1U, 2U, 7U, 8U, 9U, 100U}) {
        std::vector<std::int64_t> tokens(length, -1);
        file.read(text.size() - length, tokens);
        for (std::size_t i = 0; i < length; ++i) {
            EXPECT_EQ(tokens[i], static_cast<unsigned char>(text[text.size() - length + i])) << length << " " << i;
        }
    }
}

TEST_F(TokenFiles, HashNamesTheContentsNotThePath) {
    const std::string first = write("same").hash;
    path_ = directory_ / "other.tokens";
    EXPECT_EQ(write("same").hash, first);
    path_ = directory_ / "third.tokens";
    EXPECT_NE(write("samf").hash, first);
}

TEST_F(TokenFiles, AreRefusedWhenTheyAreNone) {
    testing::write_file(path_, "not tokens");
    EXPECT_NE(refusal().find("is not a token file"), std::string::npos);
    testing::write_file(path_, "");
    EXPECT_NE(refusal().find("is not a token file"), std::string::npos);
    write("some text");
    EXPECT_NE(refusal_after(0, "P").find("accepted"), std::string::npos);
    EXPECT_NE(refusal_after(0, "Q").find("is not a token file"), std::string::npos);
}

TEST_F(TokenFiles, AreRefusedWhenCutOrExtended) {
    write("some text");
    const std::string whole = testing::read_file(path_);
    testing::write_file(path_, whole.substr(0, whole.size() - 1));
    EXPECT_NE(refusal().find("is 72 bytes long but its header says 9 tokens"), std::string::npos);
    testing::write_file(path_, whole + "x");
    EXPECT_NE(refusal().find("it was cut or added to"), std::string::npos);
    testing::write_file(path_, whole.substr(0, 40));
    EXPECT_NE(refusal().find("is not a token file"), std::string::npos);
}

TEST_F(TokenFiles, AreRefusedWhenDamaged) {
    write("some text");
    EXPECT_NE(refusal_after(token_header_bytes + 3, "x").find("is damaged"), std::string::npos);
    write("some text");
    EXPECT_NE(refusal_after(32, "x").find("is damaged"), std::string::npos);
}

TEST_F(TokenFiles, AreRefusedWhenOfAnotherKind) {
    write("some text");
    EXPECT_NE(refusal_after(8, std::string("\x02\0", 2)).find("format version 2"), std::string::npos);
    write("some text");
    EXPECT_NE(refusal_after(12, "\x02").find("tokens of 2 bytes"), std::string::npos);
    write("some text");
    EXPECT_NE(refusal_after(16, std::string("\x10\0", 2)).find("vocabulary 16"), std::string::npos);
}

TEST_F(TokenFiles, HaveTheirNameOnlyWhenWhole) {
    {
        TokenWriter writer(path_);
        writer.append(std::as_bytes(std::span("abc", 3)));
        EXPECT_FALSE(std::filesystem::exists(path_));
        EXPECT_TRUE(std::filesystem::exists(unfinished_path(path_)));
    }
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_FALSE(std::filesystem::exists(unfinished_path(path_)));
}

// What a writer that was killed leaves: the file under its unfinished name.
TEST_F(TokenFiles, TakeOverWhatAKilledWriterLeft) {
    const std::string left = directory_ / "left";
    {
        TokenWriter killed(path_);
        killed.append(std::as_bytes(std::span("longer than the next", 20)));
        std::filesystem::copy_file(unfinished_path(path_), left);
    }
    std::filesystem::rename(left, unfinished_path(path_));
    write("short");
    EXPECT_EQ(TokenFile(path_).info().count, 5U);
    EXPECT_FALSE(std::filesystem::exists(unfinished_path(path_)));
}

TEST_F(TokenFiles, LeaveAForeignFileOfTheUnfinishedNameAlone) {
    const auto refusal_to_write = [&] {
        try {
            write("tokens");
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::usage);
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    testing::write_file(unfinished_path(path_), "precious");
    EXPECT_NE(refusal_to_write().find("is in the way"), std::string::npos);
    EXPECT_EQ(testing::read_file(unfinished_path(path_)), "precious");
    std::filesystem::rename(unfinished_path(path_), directory_ / "precious");
    std::filesystem::create_symlink(directory_ / "precious", unfinished_path(path_));
    EXPECT_NE(refusal_to_write().find("cannot open"), std::string::npos);
    EXPECT_EQ(testing::read_file(directory_ / "precious"), "precious");
    std::filesystem::remove(unfinished_path(path_));
    const TokenWriter other(path_);
    EXPECT_NE(refusal_to_write().find("is being written by another process"), std::string::npos);
    EXPECT_TRUE(std::filesystem::exists(unfinished_path(path_))) << "the other's";
}

}  // namespace
}  // namespace penstock::trainer
