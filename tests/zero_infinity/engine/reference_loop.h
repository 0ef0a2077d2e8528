// The plain in-memory loop that everything is compared with: the whole model in memory, ordinary autograd
// (loss.backward()), an AdamW, a norm and a rounding written out here and sharing no code with the product.
#pragma once

#include "tests/zero_infinity/engine/toy_model.h"
#include "zero_infinity/engine/model.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace penstock::testing {

// The fp32 master and moments of one parameter.
struct ReferenceState {
    std::vector<float> master, m, v;
    bool operator==(const ReferenceState&) const = default;
};

struct ReferenceOptions {
    bool bf16 = true;  // weights, compute and gradients; fp32 otherwise
    double clipping = 0;
    std::uint64_t seed = 1;
    std::uint64_t tile_numel = 4096;  // the norm is summed tile by tile
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
    // Of parameters whose "unit/parameter" contains the text, the first of these that does: own weight decay and rate.
    struct Own {
        std::string text;
        double weight_decay = 0;
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

    // "unit/parameter" → state, of the trainable ones.
    std::map<std::string, ReferenceState> states() const;

   private:
    struct Trained;  // one parameter
    void write_weights(Trained& parameter);
    double norm() const;
    void update(Trained& parameter, float scale, std::uint64_t step, double learning_rate);

    std::unique_ptr<engine::Model> model_;
    ReferenceOptions options_;
    std::vector<std::unique_ptr<Trained>> parameters_;
};

}  // namespace penstock::testing
