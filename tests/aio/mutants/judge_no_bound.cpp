// Mutant: what passes is tried again without bound.
#define judge right_judge
#include "aio/judge.cpp"
#undef judge

namespace penstock::aio {

Judgement judge(Chunk& chunk, const JudgeRules& rules) noexcept {
    chunk.tries = 0;
    return right_judge(chunk, rules);
}

}  // namespace penstock::aio
