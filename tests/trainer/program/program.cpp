#include "tests/trainer/program/program.h"

#include "swap/directory/descriptor.h"
#include "tests/temporary_directory.h"
#include "tests/trainer/data/text_files.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace penstock::testing {
namespace {

store::Descriptor emptied(const std::string& path) {
    store::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file) throw std::runtime_error(path + " cannot be written");
    return file;
}

[[noreturn]] void become(const std::string& directory, std::vector<char*>& arguments, int output, int errors) {
    if (::chdir(directory.c_str()) != 0) ::_exit(126);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    std::signal(SIGHUP, SIG_DFL);  // also where the tests run under nohup
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
}

}  // namespace

Program::Program(const std::string& directory, const std::vector<std::string>& command)
    : output_path_(directory + "/.stdout"), errors_path_(directory + "/.stderr") {
    std::vector<std::string> arguments = command;
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    // Emptied by us: a process that is killed at once would leave what the one before it has said.
    const store::Descriptor output = emptied(output_path_);
    const store::Descriptor errors = emptied(errors_path_);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) become(directory, pointers, output.get(), errors.get());
}

Program::~Program() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
}

bool Program::says(const std::string& text) {
    while (read_file(errors_path_).find(text) == std::string::npos) {
        siginfo_t info{};
        if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid_) {
            return read_file(errors_path_).find(text) != std::string::npos;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

Ended Program::wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .output = read_file(output_path_),
            .errors = read_file(errors_path_)};
}

Ended run_command(const std::string& directory, const std::vector<std::string>& command) {
    return Program(directory, command).wait();
}

Ended run(const std::string& directory, const std::vector<std::string>& arguments) {
    return run_command(directory, penstock(arguments));
}

std::vector<std::string> penstock(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {PENSTOCK_PROGRAM};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

namespace {

// What `penstock prepare` makes of the toy's text, once in a process of tests.
const std::string& tokens_of(const std::string& text) {
    static const std::string tokens = [&] {
        const TemporaryDirectory directory;
        write_file(directory / "text.txt", text);
        const Ended prepared = run(directory.path(), {"prepare", "--out", "text.tokens", "text.txt"});
        if (prepared.code != 0) throw std::runtime_error(prepared.errors);
        return read_file(directory / "text.tokens");
    }();
    return tokens;
}

}  // namespace

void write_toy(const std::string& directory) {
    const std::string text = toy_text(20000, 1);
    write_file(directory + "/text.txt", text);
    write_file(directory + "/text.tokens", tokens_of(text));
    write_file(directory + "/config.json", R"({
  // As small as the parts allow.
  "model": {"hidden": 32, "layers": 2, "heads": 2, "feed_forward": 64, "context": 32},
  "data": {"train": "text.tokens"},
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
  "bf16": {"enabled": true},
  "zero_optimization": {
    "stage": 3,
    "offload_param": {"device": "nvme", "nvme_path": "swap"},
    "offload_optimizer": {"device": "nvme"}
  },
  "memory": {"host_budget": "4MiB", "tile_elements": 4096},
  "run": {"directory": "run", "steps": 6, "threads": 1, "sample": {"prompt": "the ", "tokens": 8}}
})");
}

}  // namespace penstock::testing
