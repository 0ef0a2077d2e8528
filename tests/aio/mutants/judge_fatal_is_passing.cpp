// Mutant: every error is tried again.
#define judge right_judge
#include "aio/judge.cpp"
#undef judge

namespace penstock::aio {

Judgement judge(Chunk& chunk, const JudgeRules& rules) noexcept {
    if (chunk.result < 0) chunk.result = -EAGAIN;
    return right_judge(chunk, rules);
}

}  // namespace penstock::aio
