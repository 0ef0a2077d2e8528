// A small transformer whose units show everything the engine must carry: a tied head, a frozen parameter, boundaries of
// several tensors of which some are differentiated and some are not.
#pragma once

#include "zero_infinity/engine/model.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace penstock::testing {

struct ToyOptions {
    std::int64_t vocabulary = 61;
    std::int64_t width = 32;
    std::int64_t heads = 2;
    std::int64_t layers = 3;
    bool tied_head = false;
    bool frozen_gain = false;       // the blocks' second norm has a frozen gain
    bool frozen_embedding = false;  // then nothing that the first block is given requires a gradient
};

std::unique_ptr<engine::Model> make_toy_model(const ToyOptions& options);

// {"tokens", "targets"} of `rows` × `length`, drawn from `seed`.
engine::Bundle toy_batch(std::uint64_t seed, std::int64_t rows, std::int64_t length, const ToyOptions& options);

}  // namespace penstock::testing
