// Mutant: a short transfer is resumed at the odd byte.
#define judge right_judge
#include "aio/judge.cpp"
#undef judge

namespace penstock::aio {

Judgement judge(Chunk& chunk, const JudgeRules& rules) noexcept {
    return right_judge(chunk, {.alignment_bytes = 1, .tries = rules.tries});
}

}  // namespace penstock::aio
