// `penstock prepare`: text files become a token file, byte by byte.
#pragma once

#include <string>
#include <vector>

namespace penstock::trainer {

class Console;

enum class Existing : unsigned char { refuse, replace };

struct PrepareRequest {
    std::string out;              // FILE.tokens
    double validation_share = 0;  // of the tokens, from the end, into FILE.validation.tokens; 0: no such file
    Existing existing = Existing::refuse;
    std::vector<std::string>
        paths;  // files of any name; of directories *.txt, *.md and *.rst, recursively, in sorted order
};

// Each file is one document and is followed by byte 0. Throws Error: usage (a path that is missing, not readable,
// without text files, no regular file, or holds a byte 0; `out` exists, is one of the inputs, or no token file;
// nothing in it), storage. On an error no file has been made or replaced.
void prepare(const PrepareRequest& request, Console& console);

// "text.tokens" → "text.validation.tokens"
std::string validation_path(const std::string& out);

}  // namespace penstock::trainer
