// Mutant: what is resumed goes to the same place in memory.
#define judge right_judge
#include "aio/judge.cpp"
#undef judge

namespace penstock::aio {

Judgement judge(Chunk& chunk, const JudgeRules& rules) noexcept {
    std::byte* const data = chunk.data;
    const Judgement judgement = right_judge(chunk, rules);
    chunk.data = data;
    return judgement;
}

}  // namespace penstock::aio
