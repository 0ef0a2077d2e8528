// Mutant: a short count is taken for the whole.
#define judge right_judge
#include "aio/judge.cpp"
#undef judge

namespace penstock::aio {

Judgement judge(Chunk& chunk, const JudgeRules& rules) noexcept {
    if (chunk.result >= 0) chunk.result = static_cast<std::int32_t>(chunk.bytes);
    return right_judge(chunk, rules);
}

}  // namespace penstock::aio
