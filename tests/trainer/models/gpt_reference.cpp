#include "tests/trainer/models/gpt_reference.h"

#include <cmath>

namespace penstock::testing {
namespace {

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;

constexpr double pi = 3.14159265358979323846;

class Reference {
   public:
    Reference(const trainer::GptOptions& options, const Weights& weights) : options_(options), weights_(weights) {}

    Rows logits(const std::vector<std::int64_t>& tokens) const {
        Rows hidden = embed(tokens);
        for (std::int64_t layer = 0; layer < options_.layers; ++layer)
            block(hidden, "blocks." + std::to_string(layer) + ".");
        Rows result;
        const std::string head = options_.head == trainer::HeadKind::tied ? "embedding.tokens" : "head.weight";
        for (const Vector& row : hidden) result.push_back(linear(norm(row, "head.norm"), head));
        return result;
    }

   private:
    std::size_t width() const { return static_cast<std::size_t>(options_.hidden); }

    Rows embed(const std::vector<std::int64_t>& tokens) const {
        Rows rows;
        for (std::size_t column = 0; column < tokens.size(); ++column) {
            Vector row(width());
            for (std::size_t i = 0; i < width(); ++i) {
                row[i] = weights_.at("embedding.tokens")[static_cast<std::size_t>(tokens[column]) * width() + i];
                if (options_.positions == trainer::PositionKind::learned)
                    row[i] += weights_.at("embedding.positions")[column * width() + i];
            }
            rows.push_back(row);
        }
        return rows;
    }

    Vector linear(const Vector& input, const std::string& name) const {
        const Vector& weight = weights_.at(name);
        Vector output(weight.size() / input.size());
        for (std::size_t o = 0; o < output.size(); ++o) {
            for (std::size_t i = 0; i < input.size(); ++i) output[o] += weight[o * input.size() + i] * input[i];
        }
        return output;
    }

    Vector norm(const Vector& input, const std::string& name) const {
        double mean = 0;
        if (options_.norm == trainer::NormKind::layer) {
            for (const double value : input) mean += value / static_cast<double>(input.size());
        }
        double square = 0;
        for (const double value : input) square += (value - mean) * (value - mean) / static_cast<double>(input.size());
        Vector output(input.size());
        for (std::size_t i = 0; i < input.size(); ++i) {
            output[i] = (input[i] - mean) / std::sqrt(square + 1e-5) * weights_.at(name)[i];
            if (options_.norm == trainer::NormKind::layer) output[i] += weights_.at(name + "_bias")[i];
        }
        return output;
    }

    // Turns each head's part of query or key by its position.
    void rotate(Vector& vector, std::size_t position) const {
        if (options_.positions != trainer::PositionKind::rotary) return;
        const std::size_t head_width = width() / static_cast<std::size_t>(options_.heads);
        const std::size_t half = head_width / 2;
        for (std::size_t head = 0; head < vector.size(); head += head_width) {
            for (std::size_t i = 0; i < half; ++i) {
                const double angle = static_cast<double>(position) *
                                     std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_width));
                const double a = vector[head + i];
                const double b = vector[head + half + i];
                vector[head + i] = a * std::cos(angle) - b * std::sin(angle);
                vector[head + half + i] = b * std::cos(angle) + a * std::sin(angle);
            }
        }
    }

    void block(Rows& hidden, const std::string& unit) const {
        const Rows mixed = attend(hidden, unit);
        for (std::size_t column = 0; column < hidden.size(); ++column) {
            const Vector out = linear(mixed[column], unit + "attention_out");
            for (std::size_t i = 0; i < width(); ++i) hidden[column][i] += out[i];
            Vector inner = linear(norm(hidden[column], unit + "mlp_norm"), unit + "mlp_in");
            for (double& x : inner) x = 0.5 * x * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
            const Vector last = linear(inner, unit + "mlp_out");
            for (std::size_t i = 0; i < width(); ++i) hidden[column][i] += last[i];
        }
    }

    Rows attend(const Rows& hidden, const std::string& unit) const {
        Rows queries;
        Rows keys;
        Rows values;
        for (std::size_t column = 0; column < hidden.size(); ++column) {
            const Vector qkv = linear(norm(hidden[column], unit + "attention_norm"), unit + "qkv");
            const auto part = [&](std::size_t index) {
                const auto first = qkv.begin() + static_cast<std::ptrdiff_t>(index * width());
                return Vector(first, first + static_cast<std::ptrdiff_t>(width()));
            };
            queries.push_back(part(0));
            keys.push_back(part(1));
            values.push_back(part(2));
            rotate(queries.back(), column);
            rotate(keys.back(), column);
        }
        Rows mixed(hidden.size(), Vector(width()));
        const std::size_t head_width = width() / static_cast<std::size_t>(options_.heads);
        for (std::size_t column = 0; column < hidden.size(); ++column) {
            for (std::size_t head = 0; head < width(); head += head_width) {
                mix_head(queries[column], keys, values, {.column = column, .first = head, .count = head_width},
                         mixed[column]);
            }
        }
        return mixed;
    }

    struct HeadAt {
        std::size_t column;
        std::size_t first;
        std::size_t count;
    };

    static void mix_head(const Vector& query, const Rows& keys, const Rows& values, HeadAt at, Vector& out) {
        Vector scores(at.column + 1);
        double sum = 0;
        for (std::size_t other = 0; other <= at.column; ++other) {
            double dot = 0;
            for (std::size_t i = at.first; i < at.first + at.count; ++i) dot += query[i] * keys[other][i];
            scores[other] = std::exp(dot / std::sqrt(static_cast<double>(at.count)));
            sum += scores[other];
        }
        for (std::size_t other = 0; other <= at.column; ++other) {
            for (std::size_t i = at.first; i < at.first + at.count; ++i)
                out[i] += scores[other] / sum * values[other][i];
        }
    }

    const trainer::GptOptions& options_;
    const Weights& weights_;
};

}  // namespace

Rows reference_logits(const trainer::GptOptions& options, const Weights& weights,
                      const std::vector<std::int64_t>& tokens) {
    return Reference(options, weights).logits(tokens);
}

}  // namespace penstock::testing
