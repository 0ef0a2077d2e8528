// What an earlier program left is read, verified and gone on with, bit for bit: tests/earlier/make.sh.
//
// Reading and verifying hold on every machine. The bits of a step are those of LibTorch and of the C library's
// functions. LibTorch is kept here from using what not every processor has; then it gave the same bits on an AMD EPYC
// and on emulated processors with and without AVX2. Another LibTorch or C library may give others: there, and only
// there, a test whose bits differ is skipped.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <sys/utsname.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string left(const std::string& name) {
    return std::string(PENSTOCK_EARLIER "/") + name;
}

std::string this_machine() {
    utsname name{};
    ::uname(&name);
    return std::string(name.machine) + ", torch " PENSTOCK_TORCH_VERSION ", glibc " + ::gnu_get_libc_version() + "\n";
}

class EarlierProgram : public ::testing::TestWithParam<const char*> {
   protected:
    EarlierProgram() { fs::copy(left(codec()), directory_.path(), fs::copy_options::recursive); }

    static std::string codec() { return GetParam(); }

    Ended train(std::vector<std::string> more = {}) {
        std::vector<std::string> command = {"/usr/bin/env", "ATEN_CPU_CAPABILITY=default", "ONEDNN_MAX_CPU_ISA=SSE41",
                                            "MKL_CBWR=COMPATIBLE"};
        more.insert(more.begin(), {"train", "config.json", "--json"});
        for (const std::string& word : penstock(more)) command.push_back(word);
        return run_command(directory_.path(), command);
    }

    // All of a generation but when it was committed, and in which life: objects and tiles with their hashes, which are
    // of contents, place and generation, and what the training remembers.
    static json of_generation(const std::string& text) {
        json shown = json::parse(text);
        for (const char* changing : {"path", "time_s", "incarnation"}) shown.erase(changing);
        return shown;
    }
    json shown(const std::vector<std::string>& snapshot = {}) {
        std::vector<std::string> command = {"ckpt", "show", "swap.0", "--json"};
        command.insert(command.end(), snapshot.begin(), snapshot.end());
        const Ended ended = run(directory_.path(), command);
        EXPECT_EQ(ended.code, 0) << ended.errors;
        return of_generation(ended.output);
    }

    // `step` and `generation` are those of the store, and every tile is whole.
    void expect_whole(const std::vector<std::string>& which, int step, int generation) {
        std::vector<std::string> command = {"ckpt", "verify", "swap.0", "--json"};
        command.insert(command.end(), which.begin(), which.end());
        const Ended ended = run(directory_.path(), command);
        ASSERT_EQ(ended.code, 0) << ended.errors;
        const json said = json::parse(ended.output);
        EXPECT_EQ(said["step"], step);
        EXPECT_EQ(said["generation"], generation);
        EXPECT_GT(said["tiles"], 5);
        EXPECT_TRUE(said["damaged"].empty()) << ended.output;
    }

    // What a log says of its steps, but for times and bytes moved.
    static std::vector<json> steps_of(const std::string& path) {
        std::vector<json> steps;
        for (const json& line : read_json_lines(path)) {
            json step;
            for (const char* key : {"step", "committed", "loss", "grad_norm", "lr", "tokens"}) step[key] = line[key];
            steps.push_back(step);
        }
        return steps;
    }

    // A message when the bits may differ here, and do; a failure when they differ and may not.
    static std::string excuse(const std::vector<json>& found, const std::vector<json>& wanted) {
        const std::string there = read_file(left("machine"));
        if (found == wanted || this_machine() == there) return "";
        return "other arithmetic: the store is of " + there + "and here is " + this_machine();
    }

    TemporaryDirectory directory_;
};

TEST_P(EarlierProgram, ItsStoreAndItsSnapshotAreReadAndWhole) {
    EXPECT_EQ(shown(), of_generation(read_file(left(codec() + ".store"))));
    json kept = shown({"step-2"});
    EXPECT_EQ(kept["origin"]["shares_blocks"], false);  // of which that program said nothing
    kept["origin"].erase("shares_blocks");
    EXPECT_EQ(kept, of_generation(read_file(left(codec() + ".kept"))));
    expect_whole({"--also", "swap.1"}, 3, 3);
    expect_whole({"step-2"}, 2, 0);
}

TEST_P(EarlierProgram, ItsTrainingGoesOnWithTheSameBits) {
    const Ended ended = train();
    ASSERT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(json::parse(ended.output)["resumed_from_step"], 3);
    expect_whole({"--also", "swap.1"}, 6, 6);
    std::vector<json> found = steps_of(directory_ / "run/log.jsonl");
    std::vector<json> wanted = steps_of(left(codec() + ".log"));
    ASSERT_EQ(found.size(), 6U);
    found.push_back(shown());
    // What it had not.
    json& client = found.back()["client"];
    for (const char* since : {"last_norm", "config.model.loss_tokens", "config.run.deterministic", "config.run.matmul"})
        client.erase(since);
    for (auto each = client.begin(); each != client.end();)
        each = each.key().starts_with("bits.") ? client.erase(each) : std::next(each);
    wanted.push_back(of_generation(read_file(left(codec() + ".end"))));
    if (const std::string words = excuse(found, wanted); !words.empty()) GTEST_SKIP() << words;
    EXPECT_EQ(found, wanted);
}

TEST_P(EarlierProgram, ItsSnapshotIsGoneBackToWithTheSameBits) {
    const Ended ended = train({"--resume-from", "step-2"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(json::parse(ended.output)["resumed_from_step"], 2);
    const std::vector<json> found = steps_of(directory_ / "run/log.jsonl");
    const std::vector<json> wanted = steps_of(left(codec() + ".log"));
    ASSERT_EQ(found.size(), 6U);
    if (const std::string words = excuse(found, wanted); !words.empty()) GTEST_SKIP() << words;
    EXPECT_EQ(found, wanted);
}

INSTANTIATE_TEST_SUITE_P(With, EarlierProgram, ::testing::Values("split", "compact"),
                         [](const auto& codec) { return std::string(codec.param); });

}  // namespace
}  // namespace penstock::testing
