// The tensor case beside a contender that says it is fio: what each of them is given, and what is looked at.
#include "bench/io/tensor_case.h"
#include "aio/words/error.h"

#include "bench/io/io_cases.h"
#include "bench/io/tensor_run.h"
#include "tests/temporary_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

namespace penstock::bench {
namespace {

constexpr std::uint64_t mib = 1U << 20;

TEST(TensorLengths, AreOddAndBoundedAndTheSameForASeed) {
    for (const std::uint64_t total : {4 * mib, 64 * mib, 2048 * mib, 20'000 * mib}) {
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
            const std::vector<std::uint64_t> lengths = tensor_lengths(total, seed);
            EXPECT_EQ(lengths, tensor_lengths(total, seed));
            std::uint64_t sum = 0;
            for (const std::uint64_t bytes : lengths) {
                EXPECT_EQ(bytes % 2, 1U);
                EXPECT_GE(bytes, 1'000'000U);
                EXPECT_LT(bytes, 1'000'000'000U);
                sum += (bytes + 4095) / 4096 * 4096;
            }
            EXPECT_LE(sum, total);
            EXPECT_GE(sum, total / 2);
        }
    }
    EXPECT_NE(tensor_lengths(2048 * mib, 1), tensor_lengths(2048 * mib, 2));
}

// A program named fio that keeps its arguments in a file and reports one job without running it.
class TensorCase : public ::testing::Test {
   protected:
    TensorCase() {
        std::filesystem::create_directories(scratch_ / "bin");
        std::filesystem::create_directories(scratch_ / "data");
        ::setenv("PATH", (scratch_ / "bin:" + path_).c_str(), 1);
        options_.directory = scratch_ / "data";
        options_.bytes = 64 * mib;
        options_.rounds = 2;
        options_.seconds = 0.05;
    }
    ~TensorCase() override { ::setenv("PATH", path_.c_str(), 1); }

    // `deed`: a line of its shell script; $* are the arguments.
    void make_fio(const std::string& deed) {
        const std::string nothing = R"({"io_bytes": 0, "runtime": 0, "clat_ns": {}})";
        std::ofstream(scratch_ / "bin/fio")
            << "#!/bin/sh\n"
            << "echo \"$*\" >> " << scratch_ / "log"
            << "\n"
            << deed << "\ncat <<END\n"
            << R"({"jobs": [{"jobname": "bulk", "error": 0, "usr_cpu": 1, "sys_cpu": 1, "job_runtime": 10,)"
            << R"("read": {"io_bytes": 1000000, "runtime": 10, "clat_ns": {}}, "write": )" << nothing << "}]}\nEND\n";
        std::filesystem::permissions(scratch_ / "bin/fio", std::filesystem::perms::owner_all);
    }
    // The arguments of each of its runs.
    std::vector<std::string> runs() const {
        std::ifstream log(scratch_ / "log");
        std::vector<std::string> lines;
        for (std::string line; std::getline(log, line);) lines.push_back(line);
        return lines;
    }
    template <typename Case>
    void run(const Case& one) {
        Interruption stop;
        const BenchFile file(options_.directory, "io", options_.bytes);
        IoBench bench{.options = options_,
                      .stop = stop,
                      .report = report_,
                      .file = file,
                      .fio = {FioMemory::huge_pages, FioMemory::usual},
                      .noted = {}};
        fill(bench, file);
        one(bench);
    }
    // The first tensor's first bytes, as the device has them.
    static void damage(const IoBench& bench) {
        const int fd = ::open(bench.file.path().c_str(), O_WRONLY | O_CLOEXEC);
        ASSERT_GE(fd, 0);
        const std::array<char, 8> other{};
        EXPECT_EQ(::pwrite(fd, other.data(), other.size(), 0), static_cast<ssize_t>(other.size()));
        ::close(fd);
    }

    const std::string path_ = std::getenv("PATH");
    const TemporaryDirectory scratch_;
    IoBenchOptions options_;
    Report report_{"io"};
};

TEST(TensorTime, OfOursIsRoundedUpToFiosMilliseconds) {
    EXPECT_DOUBLE_EQ(seconds_after({.seconds = 0.0501}), 0.051);
    EXPECT_DOUBLE_EQ(seconds_after({.seconds = 2.75}), 2.75);
}

TEST_F(TensorCase, FioRunsAsLongAsTheTensorsBeforeItTook) {
    make_fio("");
    run(run_tensor_case);
    ASSERT_EQ(runs().size(), 8U);  // two kinds, two rounds, two memories
    for (const std::string& arguments : runs()) {
        std::smatch found;
        ASSERT_TRUE(std::regex_search(arguments, found, std::regex("--runtime=([0-9]+)ms"))) << arguments;
        // Our section lasts for 50 ms and until the tensors that it has begun are there: more than 50, rounded up.
        EXPECT_GE(std::stoi(found[1]), 51) << arguments;
    }
    const Figure* ours = report_.find("tensors read: penstock");
    ASSERT_NE(ours, nullptr);
    EXPECT_GT(ours->low(), 0);
    EXPECT_EQ(ours->rounds.size(), 2U);
    EXPECT_NE(report_.find("tensors write: penstock ÷ fio mmaphuge"), nullptr);
}

TEST_F(TensorCase, WritesAreFollowedByTheNextContenderAndByNoReadOfOurs) {
    run([](IoBench& bench) {
        TensorRun tensors(bench);
        const aio::IoStatistics& moved = tensors.rig().io().statistics();
        tensors.write();
        EXPECT_GT(moved.total_write_bytes(), 0U);
        EXPECT_EQ(moved.total_read_bytes(), 0U);
        const std::uint64_t written = moved.total_write_bytes();
        tensors.read();
        EXPECT_GT(moved.total_read_bytes(), 0U);
        EXPECT_EQ(moved.total_write_bytes(), written);
    });
}

TEST_F(TensorCase, TensorsThatCameBackOtherwiseAreAnError) {
    run([](IoBench& bench) {
        TensorRun tensors(bench);
        tensors.write();
        tensors.read();
        damage(bench);
        EXPECT_THROW(tensors.read(), Error);
        tensors.write();
        tensors.read();
    });
}

TEST_F(TensorCase, FioMayOverwriteTheTensorsBeforeTheReadsButNotBesideThem) {
    const std::string overwrite = "dd if=/dev/zero of=\"$file\" bs=4096 count=1 conv=notrunc status=none";
    const std::string file = "for a in $*; do case $a in --filename=*) file=${a#*=};; esac; done\n";
    options_.rounds = 1;  // so that fio comes last
    make_fio(file + "case \"$*\" in *--rw=write*) " + overwrite + ";; esac");
    run(run_tensor_case);
    options_.rounds = 2;  // so that ours comes again
    make_fio(file + overwrite);
    Report again("io");
    report_ = again;
    try {
        run(run_tensor_case);
        FAIL() << "reads beside which the tensors changed were accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::storage);
        EXPECT_NE(std::string(error.what()).find("came back with other bytes"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace penstock::bench
