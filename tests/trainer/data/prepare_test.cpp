#include "trainer/data/prepare.h"
#include "aio/words/error.h"

#include "tests/refusal.h"
#include "tests/trainer/data/text_files.h"
#include "trainer/cli/console.h"
#include "trainer/data/token_file.h"

#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sys/stat.h>

#include <filesystem>
#include <sstream>

namespace penstock::trainer {
namespace {

class Prepare : public ::testing::Test {
   protected:
    void run(std::vector<std::string> paths, Existing existing = Existing::refuse, double share = 0) {
        prepare({.out = out_, .validation_share = share, .existing = existing, .paths = std::move(paths)}, console_);
    }

    std::string refusal(const std::vector<std::string>& paths) {
        return refusal_of(ExitCode::usage, [&] { run(paths); });
    }

    static std::string tokens_of(const std::string& path) {
        const TokenFile file(path);
        return testing::read_file(file.path()).substr(token_header_bytes);
    }

    TemporaryDirectory directory_;
    std::string out_ = directory_ / "out.tokens";
    std::ostringstream said_;
    spdlog::logger logger_{"test", std::make_shared<spdlog::sinks::ostream_sink_mt>(said_)};
    Console console_{logger_, Console::Kind::file};
};

TEST_F(Prepare, EndsEachDocumentWithAZeroByte) {
    testing::write_file(directory_ / "b", "second");
    testing::write_file(directory_ / "a", "first");
    run({directory_ / "b", directory_ / "a"});
    EXPECT_EQ(tokens_of(out_), std::string("second\0first\0", 13));
}

TEST_F(Prepare, TakesTextFilesOfDirectoriesInSortedOrder) {
    std::filesystem::create_directories(directory_ / "t/sub");
    testing::write_file(directory_ / "t/z.txt", "z");
    testing::write_file(directory_ / "t/sub/m.md", "m");
    testing::write_file(directory_ / "t/a.rst", "a");
    testing::write_file(directory_ / "t/a.png", "picture");
    testing::write_file(directory_ / "t/empty.txt", "");
    run({directory_ / "t"});
    EXPECT_EQ(tokens_of(out_), std::string("a\0m\0z\0", 6));
    EXPECT_NE(said_.str().find("empty.txt is empty"), std::string::npos);
}

TEST_F(Prepare, ReadsFilesLongerThanOnePiece) {
    const std::string text = testing::toy_text(3U << 20, 1);
    testing::write_file(directory_ / "a", text);
    run({directory_ / "a"});
    EXPECT_EQ(tokens_of(out_), text + '\0');
}

TEST_F(Prepare, SplitsOffAShareForValidation) {
    testing::write_file(directory_ / "a", "0123456789012345678");
    run({directory_ / "a"}, Existing::refuse, 0.25);
    EXPECT_EQ(tokens_of(out_), "012345678901234");
    EXPECT_EQ(validation_path(out_), directory_ / "out.validation.tokens");
    EXPECT_EQ(tokens_of(validation_path(out_)), std::string("5678\0", 5));
}

TEST_F(Prepare, RefusesBadInputAndLeavesNothing) {
    testing::write_file(directory_ / "binary", std::string("ab\0c", 4));
    testing::write_file(directory_ / "empty", "");
    std::filesystem::create_directories(directory_ / "bare");
    EXPECT_EQ(refusal({directory_ / "no"}), (directory_ / "no") + " does not exist");
    EXPECT_NE(refusal({directory_ / "binary"}).find("is not text: byte 0 at offset 2"), std::string::npos);
    EXPECT_EQ(refusal({directory_ / "empty"}), "the given files are all empty");
    EXPECT_NE(refusal({directory_ / "bare"}).find("holds no *.txt"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(out_));
    EXPECT_FALSE(std::filesystem::exists(unfinished_path(out_)));
    out_ = directory_ / "no/out.tokens";
    EXPECT_NE(refusal({directory_ / "binary"}).find("the directory of --out"), std::string::npos);
}

TEST_F(Prepare, DoesNotReplaceUnlessForced) {
    testing::write_file(directory_ / "a", "new");
    const std::string before = "PENSTOK\nprecious";
    testing::write_file(out_, before);
    EXPECT_EQ(refusal({directory_ / "a"}), out_ + " exists already; --force replaces it");
    EXPECT_EQ(testing::read_file(out_), before);
    testing::write_file(directory_ / "binary", std::string("\0", 1));
    EXPECT_THROW(run({directory_ / "binary"}, Existing::replace), Error);
    EXPECT_EQ(testing::read_file(out_), before);
    run({directory_ / "a"}, Existing::replace);
    EXPECT_EQ(tokens_of(out_), std::string("new\0", 4));
}

TEST_F(Prepare, ReplacesTokenFilesAlone) {
    testing::write_file(directory_ / "a", "new");
    for (const std::string kept : {"precious", "PENSTO!", "{}"}) {
        testing::write_file(out_, kept);
        try {
            run({directory_ / "a"}, Existing::replace);
            ADD_FAILURE() << kept << " was replaced";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::usage);
            EXPECT_EQ(error.what(), "--out " + out_ +
                                        " is no token file, and --force replaces nothing else; move it away or give "
                                        "another --out");
        }
        EXPECT_EQ(testing::read_file(out_), kept);
    }
    for (const std::string replaced : {"", "PENS", "PENSTOK\nshort"}) {
        testing::write_file(out_, replaced);
        run({directory_ / "a"}, Existing::replace);
        EXPECT_EQ(tokens_of(out_), std::string("new\0", 4));
    }
}

TEST_F(Prepare, NeverReplacesItsOwnInput) {
    const std::string text = directory_ / "t/a.txt";
    std::filesystem::create_directories(directory_ / "t");
    testing::write_file(text, "the only copy");
    const auto refused = [&](const std::string& out, double share) {
        out_ = out;
        try {
            run({directory_ / "t"}, Existing::replace, share);
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::usage);
            return std::string(error.what()).find("is one of the inputs") != std::string::npos;
        }
        return false;
    };
    EXPECT_TRUE(refused(text, 0));
    EXPECT_TRUE(refused(directory_ / "t/../t/a.txt", 0)) << "another spelling";
    std::filesystem::create_symlink(text, directory_ / "link.tokens");
    EXPECT_TRUE(refused(directory_ / "link.tokens", 0));
    testing::write_file(directory_ / "t/b.validation.txt", "more");
    EXPECT_TRUE(refused(directory_ / "t/b.txt", 0.1));
    EXPECT_EQ(testing::read_file(text), "the only copy");
    EXPECT_EQ(testing::read_file(directory_ / "t/b.validation.txt"), "more");
    EXPECT_FALSE(std::filesystem::exists(directory_ / "t/b.txt"));
}

TEST_F(Prepare, RefusesWhatIsNoRegularFile) {
    const std::string pipe = directory_ / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(refusal({pipe}), pipe + " is a pipe or a device; give text in a file");
    testing::write_file(directory_ / "a", "text");
    out_ = pipe;
    EXPECT_THROW(run({directory_ / "a"}, Existing::replace), Error);
    EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

}  // namespace
}  // namespace penstock::trainer
