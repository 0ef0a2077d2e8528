// A process that writes generation after generation is killed at random instants; the next one finds every byte.
#include "swap/tensor_store.h"

#include "tests/seeds.h"
#include "tests/swap/exercise.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <iostream>
#include <thread>

namespace penstock::testing {
namespace {

// In the child: commits up to `last` and tells each generation through the pipe. Returns the exit code.
int commit_and_tell(const std::string& path, const Exercise& exercise, std::uint64_t last, int pipe_fd) {
    StoreDirectory directory(path, "kill");
    Io io(open_backend(directory.lock_fd(), {}).backend, {});
    const bool fresh = directory.content() != DirectoryContent::committed;
    const auto store =
        fresh ? TensorStore::create(io, {&directory},
                                    {.objects = Exercise::objects(), .caching = Caching::direct, .progress = {}})
              : TensorStore::open(io, {&directory});
    for (std::uint64_t next = store->generation() ? *store->generation() + 1 : 0; next <= last; ++next) {
        if (exercise.advance(io, *store, next)) return 1;
        if (::write(pipe_fd, &next, sizeof next) != sizeof next) return 2;
    }
    return 0;
}

class Child {
   public:
    Child(const std::string& path, const Exercise& exercise, std::uint64_t last) {
        if (::pipe2(pipe_.data(), O_CLOEXEC) != 0) std::abort();
        pid_ = ::fork();
        if (pid_ != 0) {
            ::close(pipe_[1]);
            return;
        }
        int code = 3;
        try {
            code = commit_and_tell(path, exercise, last, pipe_[1]);
        } catch (const std::exception& error) {
            std::cerr << error.what() << '\n';
        }
        ::_exit(code);
    }
    ~Child() { ::close(pipe_[0]); }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    void kill() const { ::kill(pid_, SIGKILL); }
    // Waits for its end, and returns the last generation it told of.
    std::optional<std::uint64_t> last_told() const {
        std::optional<std::uint64_t> last;
        for (std::uint64_t told = 0; ::read(pipe_[0], &told, sizeof told) == sizeof told;) last = told;
        return last;
    }
    int exit_status() const {
        int status = 0;
        ::waitpid(pid_, &status, 0);
        return status;
    }

   private:
    std::array<int, 2> pipe_{};
    pid_t pid_ = -1;
};

class KillTest : public ::testing::Test {
   protected:
    std::string path() const { return scratch_.file("store"); }

    // What a new process finds; nothing when no generation was ever committed.
    std::optional<std::uint64_t> verify(const Exercise& exercise) const {
        StoreDirectory directory(path(), "kill");
        if (directory.content() != DirectoryContent::committed) return std::nullopt;
        Io io(open_backend(directory.lock_fd(), {}).backend, {});
        const auto store = TensorStore::open(io, {&directory});
        EXPECT_EQ(exercise.difference(io, *store, store->generation().value()), "");
        return store->generation();
    }

   private:
    ScratchDirectory scratch_;
};

TEST_F(KillTest, AfterAnyKillTheLastCommittedGenerationIsWhole) {
    const std::uint64_t seed = first_seed();
    std::mt19937_64 random(seed);
    const Exercise exercise(seed);
    std::optional<std::uint64_t> reported;
    for (int kill = 0; kill < 30; ++kill) {
        SCOPED_TRACE(fmt::format("{}, kill {}", replay(seed), kill));
        const Child child(path(), exercise, 1'000'000);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
        child.kill();
        if (const auto told = child.last_told()) reported = told;
        const int status = child.exit_status();
        ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself with status " << status;
        const auto found = verify(exercise);
        ASSERT_TRUE(found || !reported) << "generation " << *reported << " was forgotten";
        if (!found) continue;
        ASSERT_GE(*found, reported.value_or(0));
        ASSERT_LE(*found, reported ? *reported + 1 : 0);
        reported = found;
    }
    const std::uint64_t last = reported.value_or(0) + 3;
    const Child child(path(), exercise, last);
    EXPECT_EQ(child.last_told(), last);
    EXPECT_EQ(child.exit_status(), 0);
    EXPECT_EQ(verify(exercise), last);
    std::cout << "generations " << last << '\n';
}

}  // namespace
}  // namespace penstock::testing
