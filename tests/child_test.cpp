#include "tests/child.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace penstock::testing {
namespace {

[[noreturn]] std::string wait_for_ever() {
    for (;;) ::pause();
}

TEST(Child, SaysWhatItsBodyReturns) {
    const std::string much(1 << 20, 'x');
    const ChildEnd end = in_child([&] { return much; });
    EXPECT_EQ(end.status, 0);
    EXPECT_TRUE(end.said == much);
    EXPECT_EQ(end.complaint, "");
}

TEST(Child, ComplainsOfWhatItsBodyThrows) {
    Child child([](const Child::Say& say) {
        say("begun");
        throw std::runtime_error("wrong");
    });
    const ChildEnd end = child.end();
    EXPECT_EQ(WEXITSTATUS(end.status), 1);
    EXPECT_EQ(end.said, "begun");
    EXPECT_EQ(end.complaint, "wrong");
}

TEST(Child, IsKilledAtItsDeadline) {
    const ChildEnd end = in_child(wait_for_ever, std::chrono::milliseconds(20));
    EXPECT_TRUE(end.hung);
    EXPECT_TRUE(WIFSIGNALED(end.status));
}

TEST(Child, IsHeardBeforeItEndsAndIsGoneWithItsOwner) {
    pid_t pid = 0;
    {
        const Child child([](const Child::Say& say) {
            say("ready");
            wait_for_ever();
        });
        pid = child.pid();
        EXPECT_EQ(child.hear(5), "ready");
        EXPECT_EQ(::kill(pid, 0), 0);
    }
    EXPECT_EQ(::kill(pid, 0), -1);
}

}  // namespace
}  // namespace penstock::testing
