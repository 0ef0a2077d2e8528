// The table of optimizers: its rows are found by their words and by the numbers that C programs were compiled with.
#include "zero_infinity/optimizer/optimizer_kind.h"

#include "zero_infinity/capi/penstock_session.h"
#include "zero_infinity/keys/key_spec.h"

#include <gtest/gtest.h>

namespace penstock::zero {
namespace {

TEST(OptimizerKind, HasTheNumberThatCHasForIt) {
    EXPECT_EQ(optimizer_kinds.size(), 5U);
    EXPECT_EQ(optimizer_kinds.at(PENSTOCK_ADAMW).word, "AdamW");
    EXPECT_EQ(optimizer_kinds.at(PENSTOCK_ADAM).word, "Adam");
    EXPECT_EQ(optimizer_kinds.at(PENSTOCK_SGD).word, "SGD");
    EXPECT_EQ(optimizer_kinds.at(PENSTOCK_ADAGRAD).word, "Adagrad");
    EXPECT_EQ(optimizer_kinds.at(PENSTOCK_LION).word, "Lion");
}

TEST(OptimizerKind, MakesTheOptimizerOfItsWord) {
    for (const OptimizerKind& kind : optimizer_kinds) {
        EXPECT_TRUE(same_word(kind.make(kind.defaults)->name(), kind.word)) << kind.word;
        EXPECT_EQ(find_optimizer(kind.word), &kind);
    }
    EXPECT_EQ(find_optimizer("adamw"), nullptr);
    EXPECT_EQ(find_optimizer(""), nullptr);
}

}  // namespace
}  // namespace penstock::zero
