// A child process with a deadline, which says something before it ends.
#pragma once

#include <functional>
#include <string>

namespace penstock::testing {

struct ChildEnd {
    bool hung = false;
    int status = 0;  // of waitpid(); 0: it said all it had to say
    std::string said;
};

// What `body` throws is a status of its own. The process is killed when it has not ended in two minutes.
ChildEnd in_child(const std::function<std::string()>& body);

}  // namespace penstock::testing
