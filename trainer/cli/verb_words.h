// The words of a command line that say what to do.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace penstock::trainer {

// What is to be said of the first word that stands where a verb of `app` must and is none, with the nearest verb;
// empty: the verbs are right as far as they go. `words` are the command line without the program's name.
std::string complaint_about_verb(const CLI::App& app, const std::vector<std::string>& words);

// "help ckpt" as "ckpt --help"; what does not begin with "help" as it is.
std::vector<std::string> help_as_option(std::vector<std::string> words);

// Of an option's value, as CLI11 asks it: an empty one is a variable of a script that was never set, and must not mean
// "not given".
std::string not_empty(const std::string& value);

}  // namespace penstock::trainer
