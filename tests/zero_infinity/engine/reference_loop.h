// The plain in-memory loop that everything is compared with: the whole model in memory, ordinary autograd
// (loss.backward()); the first weights, a sum of gradients, a norm, a rounding and the optimizers are written out here
// and share no code with the product.
#pragma once

#include "tests/oracle/reference_optimizer.h"
#include "tests/zero_infinity/engine/toy_model.h"
#include "zero_infinity/engine/model.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace penstock::testing {

struct ReferenceOptions {
    // Of the weights that compute reads: the master, or its rounding to bf16 with ties away from zero or to even.
    enum class Weights : std::uint8_t { fp32, bf16_away, bf16_even } weights = Weights::bf16_away;
    bool bf16_gradients = true;  // their sums; fp32 otherwise
    double clipping = 0;
    std::uint64_t seed = 1;
    std::uint64_t tile_numel = 4096;  // the norm is summed tile by tile
    ReferenceOptimizer optimizer;
    // Of parameters whose "unit/parameter" contains the text, the first of these that does.
    struct Own {
        std::string text;
        ReferenceOptimizer optimizer;
        double learning_rate_factor = 1;
    };
    std::vector<Own> own;
};

class ReferenceLoop {
   public:
    ReferenceLoop(std::unique_ptr<engine::Model> model, const ReferenceOptions& options);
    ~ReferenceLoop();

    struct Step {
        double loss = 0;
        double norm = 0;
    };
    Step train_batch(const std::vector<engine::Bundle>& micro_batches, std::uint64_t step, double learning_rate);
    // Each rank's micro-batches in their own sums; their mean, added in the order of the ranks in fp32, is rounded
    // once. The norm is not counted. REQUIRES: no clipping.
    Step train_ranks(const std::vector<std::vector<engine::Bundle>>& of_ranks, std::uint64_t step,
                     double learning_rate);

    // "unit/parameter" → state, of the trainable ones.
    std::map<std::string, ReferenceState> states() const;

   private:
    struct Trained;  // one parameter
    double add_batch(const std::vector<engine::Bundle>& micro_batches);
    void write_weights(Trained& parameter);
    void add_gradient(Trained& parameter, bool first) const;
    double norm() const;
    void update(Trained& parameter, float scale, std::uint64_t step, double learning_rate);

    std::unique_ptr<engine::Model> model_;
    ReferenceOptions options_;
    std::vector<std::unique_ptr<Trained>> parameters_;
};

// What a parameter begins with: by torch's generator, seeded with a hash of "unit/parameter" and the run's seed.
std::vector<float> first_weights(const engine::Parameter& parameter, const std::string& unit, std::uint64_t seed);

}  // namespace penstock::testing
