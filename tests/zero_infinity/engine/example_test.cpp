// The README's program is the one in examples, and does what it says.
#include "tests/temporary_directory.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace penstock::testing {
namespace {

std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Example, IsShownInTheReadmeAsItIs) {
    const std::string program = text_of(PENSTOCK_SOURCE_DIR "/examples/engine.cpp");
    ASSERT_FALSE(program.empty());
    const std::string page = text_of(PENSTOCK_SOURCE_DIR "/zero_infinity/README.md");
    EXPECT_NE(page.find("```cpp\n" + program + "```"), std::string::npos);
}

TEST(Example, TrainsAndGoesOnWhereItEnded) {
    const TemporaryDirectory directory;
    const std::string output = directory.path() + "/output";
    const std::string command = PENSTOCK_EXAMPLE " " + directory.path() + "/swap >" + output;
    const auto run = [&] {
        EXPECT_EQ(std::system(command.c_str()), 0);
        return text_of(output);
    };
    const auto loss_of = [](const std::string& text, const std::string& step) {
        const std::size_t at = text.find("step " + step + ": loss ");
        return at == std::string::npos ? -1 : std::stod(text.substr(at + step.size() + 12));
    };
    const double first = loss_of(run(), "1");
    const double last = loss_of(run(), "20");
    EXPECT_GT(first, 0);
    EXPECT_GT(last, 0) << text_of(output);
    EXPECT_LT(last, first);
}

}  // namespace
}  // namespace penstock::testing
