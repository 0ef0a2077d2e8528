#include "trainer/run/training_loop.h"

#include "trainer/config/schedule.h"

#include <utility>

namespace penstock::trainer {

engine::StepReport TrainingLoop::next_step() {
    const TrainConfig& config = run_.config();
    RunState next = progress_.state;
    next.step += 1;
    next.rows += run_.batches().rows_of_step();
    const zero::StepValues values{.step = static_cast<std::uint64_t>(next.step),
                                  .learning_rate = learning_rate(config.schedule, next.step)};
    const engine::StepReport report = run_.session().engine().train_batch(run_.batches().after(progress_.state.rows),
                                                                          values, [&](const engine::StepReport& known) {
                                                                              next.last_loss = known.loss;
                                                                              next.last_norm = known.gradient_norm;
                                                                              if (next.step == 1)
                                                                                  next.first_loss = known.loss;
                                                                              return run_.client_state(next);
                                                                          });
    progress_.state = std::move(next);
    if (report.committed_before && run_.config().durable()) progress_.committed = step() - 1;
    if (report.committed) was_settled();
    return report;
}

void TrainingLoop::settle() {
    if (progress_.committed == step()) return;
    run_.session().engine().settle();
    was_settled();
}

}  // namespace penstock::trainer
