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
    note_commits(report);
    return report;
}

// Who has come to this step's norm has ended the commits before it.
void TrainingLoop::note_commits(const engine::StepReport& report) {
    if (run_.ranks().several()) progress_.committed = committed_here_;
    if (report.committed_before && run_.config().durable()) committed_here_ = step() - 1;
    if (report.committed) committed_here_ = step();
    if (!run_.ranks().several()) progress_.committed = committed_here_;
}

void TrainingLoop::settle() {
    if (progress_.committed == step()) return;
    run_.session().engine().settle();
    zero::gathered(run_.session().ranks(), "the last commit", step());
    was_settled();
}

}  // namespace penstock::trainer
