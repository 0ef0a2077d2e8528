// What a call that must refuse says.
#pragma once

#include "aio/words/error.h"

#include <gtest/gtest.h>

#include <string>

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

namespace penstock {

// The words of the Error that `call` throws, or "accepted". An Error with another code fails the test.
template <typename Call>
std::string refusal_of(ExitCode code, const Call& call) {
    try {
        call();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        return error.what();
    }
    return "accepted";
}

}  // namespace penstock
