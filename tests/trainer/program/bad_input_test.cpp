// Each documented exit code that a user can cause, by the real program on broken input: the code, one clear message, no
// hang.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace penstock::testing {
namespace {

class BadInput : public ::testing::Test {
   protected:
    BadInput() { write_toy(directory_.path()); }

    Ended train(std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"train", "config.json"});
        return run(directory_.path(), more);
    }

    // The program said one error, with all these parts, and ended with the code.
    static void expect_refused(const Ended& ended, int code, const std::vector<std::string>& parts) {
        EXPECT_EQ(ended.code, code) << ended.errors;
        EXPECT_EQ(ended.output, "");
        const std::string mark = "penstock: error: ";
        const auto at = ended.errors.find(mark);
        ASSERT_NE(at, std::string::npos) << ended.errors;
        EXPECT_EQ(ended.errors.find(mark, at + 1), std::string::npos) << ended.errors;
        for (const std::string& part : parts)
            EXPECT_NE(ended.errors.find(part, at), std::string::npos) << part << " in " << ended.errors;
    }

    void change_config(const std::string& from, const std::string& to) {
        std::string text = read_file(directory_ / "config.json");
        const auto at = text.find(from);
        ASSERT_NE(at, std::string::npos) << from;
        text.replace(at, from.size(), to);
        write_file(directory_ / "config.json", text);
    }

    TemporaryDirectory directory_;
};

TEST_F(BadInput, CommandLine) {
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{},
          {"trian"},
          {"train"},
          {"train", "config.json", "--stepz", "3"},
          {"train", "config.json", "--steps", "0"},
          {"train", "config.json", "--steps", "abc"},
          {"prepare", "text.txt"},
          {"prepare", "--out", "x.tokens", "--validation-share", "2", "text.txt"}}) {
        const Ended ended = run(directory_.path(), arguments);
        EXPECT_EQ(ended.code, 2) << (arguments.empty() ? "" : arguments[0]);
        EXPECT_NE(ended.errors, "");
        EXPECT_EQ(ended.output, "");
    }
}

TEST_F(BadInput, SeveralProcessesOfALauncherAndAnAllocationThatIsNone) {
    const auto with = [&](const std::string& variable) {
        std::vector<std::string> command = penstock({"train", "config.json", "--steps", "1"});
        command.insert(command.begin(), {"/usr/bin/env", variable});
        return run_command(directory_.path(), command);
    };
    const auto files = [&] { return std::distance(std::filesystem::directory_iterator(directory_.path()), {}); };
    const auto before = files();
    expect_refused(with("WORLD_SIZE=2"), 2,
                   {"WORLD_SIZE is 2", "several processes", "env -u WORLD_SIZE penstock train"});
    expect_refused(with("SLURM_STEP_NUM_TASKS=3"), 2, {"SLURM_STEP_NUM_TASKS"});
    EXPECT_LE(files(), before + 2) << "more than what the test keeps of the outputs";
    EXPECT_EQ(with("SLURM_NTASKS=3").code, 0);
}

TEST_F(BadInput, MistypedVerbs) {
    const auto said = [&](const std::vector<std::string>& arguments) { return run(directory_.path(), arguments); };
    expect_refused(said({"trian", "config.json"}), 2, {"there is no verb 'trian'; the nearest is 'train'"});
    expect_refused(said({"ckpt", "verfy", "swap"}), 2, {"there is no verb 'verfy'; the nearest is 'verify'"});
    expect_refused(said({"xyzzyxyzzy"}), 2,
                   {"there is no verb 'xyzzyxyzzy'; there are: prepare, train, plan, ckpt, bench, keys"});
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"help"}, {"help", "ckpt"}}) {
        const Ended help = said(arguments);
        EXPECT_EQ(help.code, 0) << help.errors;
        EXPECT_EQ(help.output, said(arguments.size() == 1 ? std::vector<std::string>{"--help"}
                                                          : std::vector<std::string>{"ckpt", "--help"})
                                   .output);
    }
}

TEST_F(BadInput, MissingConfiguration) {
    expect_refused(run(directory_.path(), {"train", "none.json"}), 2, {"none.json", "No such file or directory"});
    expect_refused(run(directory_.path(), {"train", "."}), 2, {"Is a directory"});
}

TEST_F(BadInput, ConfigurationThatIsTooLong) {
    write_file(directory_ / "config.json", std::string((1U << 20) + 1, ' '));
    expect_refused(train(), 2, {"config.json is longer than 1048576 bytes"});
}

TEST_F(BadInput, APipeIsReadForConfigurationAndRefusedForData) {
    const std::string pipe = directory_ / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    expect_refused(train({"--set", "data.train=pipe"}), 2, {"data.train: pipe is no regular file"});
    expect_refused(run(directory_.path(), {"prepare", "--out", "x.tokens", "pipe"}), 2, {"pipe is a pipe or a device"});
    for (const std::string& source : {std::string("/dev/stdin"), pipe}) {
        const std::string script = source == pipe ? "cat config.json > pipe & exec " PENSTOCK_PROGRAM " train pipe"
                                                  : "cat config.json | " PENSTOCK_PROGRAM " train /dev/stdin";
        const Ended ended = run_command(directory_.path(), {"/bin/sh", "-c", script});
        EXPECT_EQ(ended.code, 0) << ended.errors;
    }
}

TEST_F(BadInput, MisspeltKey) {
    change_config("\"hidden\"", "\"hiden\"");
    expect_refused(train(), 2, {"config.json: key 'model.hiden' is unknown", "'model.hidden'"});
}

TEST_F(BadInput, ValueOfTheWrongType) {
    change_config("\"hidden\": 32", "\"hidden\": \"wide\"");
    expect_refused(train(), 2, {"key 'model.hidden' is \"wide\" (text); expected an integer"});
}

TEST_F(BadInput, ConfigurationThatIsNotJson) {
    change_config("\"stage\": 3,", "\"stage\" 3,");
    expect_refused(train(), 2, {"config.json: is not JSON", "line"});
}

TEST_F(BadInput, MissingDataFile) {
    expect_refused(train({"--set", "data.train=none.tokens"}), 2,
                   {"data.train: there is no none.tokens", "penstock prepare --out none.tokens"});
    EXPECT_FALSE(std::filesystem::exists(directory_ / "swap"));
}

TEST_F(BadInput, DataFileThatIsNoTokenFile) {
    expect_refused(train({"--set", "data.train=text.txt"}), 2, {"text.txt is not a token file", "penstock prepare"});
}

TEST_F(BadInput, DataFileThatIsTooShort) {
    write_file(directory_ / "short.txt", "few words");
    ASSERT_EQ(run(directory_.path(), {"prepare", "--out", "short.tokens", "short.txt"}).code, 0);
    expect_refused(train({"--set", "data.train=short.tokens"}), 2,
                   {"short.tokens has 10 tokens; model.context 32 needs at least 33"});
}

TEST_F(BadInput, ModelThatIsLargerThanTheBudget) {
    expect_refused(train({"--set", "model.hidden=512"}), 3, {"memory.host_budget"});
    EXPECT_FALSE(std::filesystem::exists(directory_ / "swap")) << "nothing is made before the budget is checked";
}

TEST_F(BadInput, DeviceThatIsNotThere) {
    const Ended ended = train({"--set", "memory.device=cuda", "--set", "memory.device_budget=64MiB"});
    if (ended.code == 0) GTEST_SKIP() << "there is a GPU";
    expect_refused(ended, 2, {"cuda"});
}

TEST_F(BadInput, SwapDirectoryWhoseParentIsMissing) {
    expect_refused(train({"--set", "zero_optimization.offload_param.nvme_path=none/swap"}), 4, {"none/swap"});
}

// Runs the training in a mount namespace of its own, where `swap` is a small file system: works without root.
class BadMount : public BadInput {
   protected:
    void mount_and_train(const std::string& options, const std::vector<std::string>& parts) {
        std::filesystem::create_directories(directory_ / mounted_);
        const std::string script = "mount -t tmpfs -o " + options + " none " + mounted_ +
                                   " || exit 99; exec " PENSTOCK_PROGRAM " train config.json --steps 100";
        const Ended ended = run_command(directory_.path(), {"/usr/bin/unshare", "-Urm", "/bin/sh", "-c", script});
        if (ended.code == 99 || ended.code == 127 || ended.errors.find("unshare:") != std::string::npos) {
            GTEST_SKIP() << "no mount namespaces here: " << ended.errors;
        }
        expect_refused(ended, expected_code_, parts);
    }

    std::string mounted_ = "swap";
    int expected_code_ = 0;
};

TEST_F(BadMount, SwapDirectoryThatIsTooSmall) {
    expected_code_ = 3;
    mount_and_train("size=256k", {"swap", "free"});
}

TEST_F(BadMount, SwapDirectoryThatIsReadOnly) {
    expected_code_ = 4;
    mount_and_train("size=64m,ro", {"swap", "ead-only"});
}

TEST_F(BadMount, RunDirectoryThatGetsFull) {
    mounted_ = "run";
    expected_code_ = 4;
    mount_and_train("size=8k", {"cannot write run/log.jsonl: No space left on device; step ", " is committed in swap"});
}

TEST_F(BadInput, SwapDirectoryWithForeignFiles) {
    std::filesystem::create_directories(directory_ / "swap");
    write_file(directory_ / "swap/thesis.txt", "precious");
    expect_refused(train(), 4, {"swap", "thesis.txt"});
    EXPECT_EQ(read_file(directory_ / "swap/thesis.txt"), "precious");
}

TEST_F(BadInput, SwapDirectoryOfAnotherJob) {
    ASSERT_EQ(train({"--set", "run.name=first"}).code, 0);
    expect_refused(train({"--set", "run.name=second"}), 4, {"swap", "first"});
}

TEST_F(BadInput, SwapDirectoryInUse) {
    Program running(directory_.path(), penstock({"train", "config.json", "--steps", "100000"}));
    ASSERT_TRUE(running.says("step 1/100000"));
    const TemporaryDirectory other;
    const Ended ended =
        run(other.path(), {"train", directory_ / "config.json", "--set", "data.train=" + (directory_ / "text.tokens"),
                           "--set", "zero_optimization.offload_param.nvme_path=" + (directory_ / "swap")});
    expect_refused(ended, 4, {"swap", std::to_string(running.pid())});
}

TEST_F(BadInput, DamagedTile) {
    ASSERT_EQ(train({"--steps", "2"}).code, 0);
    // One byte of each page, so that whichever slot is current is hit.
    const std::string path = directory_ / "swap/data";
    ASSERT_TRUE(std::filesystem::exists(path));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    for (std::uint64_t offset = 0; offset < std::filesystem::file_size(path); offset += 4096) {
        file.seekg(static_cast<std::streamoff>(offset));
        const int byte = file.get();
        file.seekp(static_cast<std::streamoff>(offset));
        file.put(static_cast<char>(byte ^ 1));
    }
    file.close();
    expect_refused(train(), 4, {"swap/data", "offset"});
}

TEST_F(BadInput, ResumeWithAKeyThatChangesTheResult) {
    ASSERT_EQ(train({"--steps", "2"}).code, 0);
    expect_refused(train({"--set", "run.seed=2"}), 2, {"run.seed is 2 but the run in swap was started with 1"});
    expect_refused(train({"--set", "optimizer.params.lr=0.1"}), 2, {"optimizer.params.lr is 0.1", "0.003"});
    EXPECT_EQ(train().code, 0) << "nothing is lost";
}

TEST_F(BadInput, ResumeWithOtherTokens) {
    ASSERT_EQ(train({"--steps", "2"}).code, 0);
    write_file(directory_ / "other.txt", toy_text(20000, 2));
    ASSERT_EQ(run(directory_.path(), {"prepare", "--out", "other.tokens", "other.txt"}).code, 0);
    expect_refused(train({"--set", "data.train=other.tokens"}), 2,
                   {"data.train is other.tokens with contents ", "--change data.train"});
    std::filesystem::rename(directory_ / "text.tokens", directory_ / "moved.tokens");
    EXPECT_EQ(train({"--set", "data.train=moved.tokens"}).code, 0) << "a path may change";
}

TEST_F(BadInput, LossThatIsNotFinite) {
    const Ended ended = train({"--steps", "200", "--set", "optimizer.params.lr=1000", "--set", "gradient_clipping=0",
                               "--set", "optimizer.params.weight_decay=1000"});
    expect_refused(ended, 6, {});
}

TEST_F(BadInput, RunDirectoryThatCannotBe) {
    expect_refused(train({"--set", "run.directory=text.txt/run"}), 2, {"run.directory: cannot make text.txt/run"});
}

TEST_F(BadInput, Prepare) {
    expect_refused(run(directory_.path(), {"prepare", "--out", "x.tokens", "none"}), 2, {"none does not exist"});
    expect_refused(run(directory_.path(), {"prepare", "--out", "text.tokens", "text.txt"}), 2,
                   {"text.tokens exists already; --force"});
    EXPECT_EQ(run(directory_.path(), {"prepare", "--force", "--out", "text.tokens", "text.txt"}).code, 0);
    expect_refused(run(directory_.path(), {"prepare", "--out", "y.tokens", "text.tokens"}), 2,
                   {"text.tokens is not text: byte 0 at offset"});
}

// A token file that becomes standard error would have lines of the log in its header.
TEST_F(BadInput, ClosedStandardDescriptorsAreNobodysFiles) {
    const Ended ended =
        run_command(directory_.path(),
                    {"/bin/sh", "-c", "exec " PENSTOCK_PROGRAM " prepare --out closed.tokens text.txt <&- >&- 2>&-"});
    EXPECT_EQ(ended.code, 0);
    EXPECT_EQ(read_file(directory_ / "closed.tokens"), read_file(directory_ / "text.tokens"));
    const Ended result = run_command(directory_.path(), {"/bin/sh", "-c", "exec " PENSTOCK_PROGRAM " keys >&-"});
    expect_refused(result, 4, {"cannot write the result to standard output"});
}

TEST_F(BadInput, ALimitOnTheLengthOfFilesIsAnErrorAndNoCrash) {
    const Ended ended =
        run_command(directory_.path(),
                    {"/bin/sh", "-c", "ulimit -f 8; exec " PENSTOCK_PROGRAM " prepare --out long.tokens text.txt"});
    expect_refused(ended, 4, {"cannot write long.tokens.penstock-unfinished: File too large"});
    EXPECT_FALSE(std::filesystem::exists(directory_ / "long.tokens.penstock-unfinished"));
}

}  // namespace
}  // namespace penstock::testing
