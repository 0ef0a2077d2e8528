// The shape of the GPT-style decoder, without torch.
#pragma once

#include "aio/words/enum_words.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

enum class NormKind : std::uint8_t { rms, layer };
constexpr auto words_of(NormKind) noexcept {
    return std::array{Word{NormKind::rms, "rms"}, Word{NormKind::layer, "layer"}};
}
enum class PositionKind : std::uint8_t { rotary, learned };
constexpr auto words_of(PositionKind) noexcept {
    return std::array{Word{PositionKind::rotary, "rotary"}, Word{PositionKind::learned, "learned"}};
}
enum class HeadKind : std::uint8_t { own, tied };

struct GptOptions {
    std::int64_t vocabulary = 256;
    std::int64_t hidden = 512;
    std::int64_t layers = 8;
    std::int64_t heads = 8;
    std::int64_t feed_forward = 2048;
    std::int64_t context = 256;
    NormKind norm = NormKind::rms;
    PositionKind positions = PositionKind::rotary;
    HeadKind head = HeadKind::own;
    std::vector<std::string> frozen;                         // unit names, or UNIT.PARAMETER
    std::optional<std::int64_t> loss_tokens = std::nullopt;  // whose logits are there at once; none: see below
};

// As many as have logits of 256 MiB in fp32, so that none but large vocabularies are cut: of 152 k tokens 441 at once.
constexpr std::int64_t loss_tokens_at_once(const GptOptions& options) noexcept {
    return options.loss_tokens.value_or(std::max<std::int64_t>(1, (256 << 20) / 4 / options.vocabulary));
}

// Embedding, layers and head.
constexpr std::uint32_t unit_count(const GptOptions& options) noexcept {
    return static_cast<std::uint32_t>(options.layers) + 2;
}

// Of the hidden states between two units.
constexpr std::uint64_t hidden_bytes(const GptOptions& options, std::int64_t rows,
                                     std::uint64_t element_bytes) noexcept {
    return static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(options.context) *
           static_cast<std::uint64_t>(options.hidden) * element_bytes;
}

// Of those between all units, which training keeps for backward (engine::StepReport::activation_bytes). Example: 4096
// wide in bf16, 32 layers: 0.55 GB for each row of 2048 tokens.
constexpr std::uint64_t activation_bytes(const GptOptions& options, std::int64_t rows,
                                         std::uint64_t element_bytes) noexcept {
    return hidden_bytes(options, rows, element_bytes) * (unit_count(options) - 1);
}

}  // namespace penstock::trainer
