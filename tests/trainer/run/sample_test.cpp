#include "trainer/run/sample.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace penstock::trainer {
namespace {

TEST(Sample, DrawsByProbability) {
    // softmax of ln(1), ln(2), ln(5) is 1/8, 2/8, 5/8.
    const at::Tensor logits = at::log(at::tensor({1.0F, 2.0F, 5.0F}));
    EXPECT_EQ(draw(logits, 1, 0.0), 0);
    EXPECT_EQ(draw(logits, 1, 0.12), 0);
    EXPECT_EQ(draw(logits, 1, 0.13), 1);
    EXPECT_EQ(draw(logits, 1, 0.37), 1);
    EXPECT_EQ(draw(logits, 1, 0.38), 2);
    EXPECT_EQ(draw(logits, 1, 0.9999999), 2);
    // At temperature 1/2 the weights are squared: 1, 4, 25 of 30.
    EXPECT_EQ(draw(logits, 0.5, 1.0 / 30 - 1e-6), 0);
    EXPECT_EQ(draw(logits, 0.5, 1.0 / 30 + 1e-6), 1);
    EXPECT_EQ(draw(logits, 0.5, 5.0 / 30 + 1e-6), 2);
}

TEST(Sample, TakesTheLikeliestAtTemperatureZero) {
    EXPECT_EQ(draw(at::tensor({1.0F, 3.0F, 3.0F, 2.0F}), 0, 0.99), 1);
}

TEST(Sample, SurvivesLargeLogits) {
    EXPECT_EQ(draw(at::tensor({1e30F, -1e30F}), 0.01, 0.5), 0);
}

TEST(Sample, ShowsOnlyText) {
    EXPECT_EQ(printable("plain\ntext"), "plain\ntext");
    EXPECT_EQ(printable(std::string("a\0b", 3)), "a\nb");
    EXPECT_EQ(printable("a\x1b[31mb\x7f\r"), "a [31mb  ");
    EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
              "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
    const std::string bad = "\xef\xbf\xbd";
    EXPECT_EQ(printable("\xff"), bad);
    EXPECT_EQ(printable("\xc3"), bad);                      // cut off
    EXPECT_EQ(printable("\xc0\x80"), bad + bad);            // overlong
    EXPECT_EQ(printable("\xed\xa0\x80"), bad + bad + bad);  // surrogate
    EXPECT_EQ(printable("\xe2\x82"
                        "a"),
              bad + bad + "a");
}

}  // namespace
}  // namespace penstock::trainer
