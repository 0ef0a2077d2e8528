// What is said of a run that ends in an abort or a fault: no SCOPED_TRACE is printed then.
#pragma once

#include <string>

namespace penstock::fuzz {

// Written to standard error by whatever signal ends the process while this lives. One at a time; one thread.
class LastWords {
   public:
    explicit LastWords(std::string words);
    ~LastWords();
    LastWords(const LastWords&) = delete;
    LastWords& operator=(const LastWords&) = delete;

   private:
    std::string words_;
};

}  // namespace penstock::fuzz
