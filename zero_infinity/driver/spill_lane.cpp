#include "zero_infinity/driver/spill_lane.h"

#include "aio/words/check.h"

namespace penstock::zero {

struct SpillLane::Line final : store::SpillOperation {
    void spill_done() noexcept override { lane->ended(*this); }

    SpillLane* lane = nullptr;
    store::SpillBlock own;
    std::vector<SpillErrand> errands;  // the first is under way
    bool awaited = false;
    TraceStart started;
};

SpillLane::SpillLane(store::Spill* spill, TraceRecorder* trace) : spill_(spill), trace_(trace) {}

SpillLane::~SpillLane() {
    PENSTOCK_CHECK(idle(), "{} spilled blocks are under way", under_way_);
}

store::Spill& SpillLane::spill() const {
    PENSTOCK_CHECK(spill_ != nullptr, "something is spilled, but there is no spill");
    return *spill_;
}

void SpillLane::send(store::SpillBlock block, const SpillErrand& errand) {
    if (block.index >= lines_.size()) lines_.resize(block.index + 1);
    std::unique_ptr<Line>& line = lines_[block.index];
    if (!line) {
        line = std::make_unique<Line>();
        line->lane = this;
        line->own = block;
    }
    line->errands.push_back(errand);
    if (line->errands.size() == 1 && !stopped_ && !error_) begin(*line);
}

void SpillLane::begin(Line& line) {
    const SpillErrand& errand = line.errands.front();
    ++under_way_;
    line.started = trace_start(trace_);
    const aio::Urgency urgency = line.awaited ? aio::Urgency::demand : errand.urgency;
    if (errand.way == SpillErrand::Way::out)
        spill().write(line, line.own, errand.memory, urgency);
    else
        spill().read(line, line.own, errand.memory, urgency);
}

void SpillLane::await(store::SpillBlock block) noexcept {
    if (block.index >= lines_.size() || !lines_[block.index]) return;
    Line& line = *lines_[block.index];
    if (line.errands.empty()) return;
    line.awaited = true;
    if (!line.idle()) spill_->promote(line, aio::Urgency::demand);
}

void SpillLane::ended(Line& line) noexcept {
    --under_way_;
    const SpillErrand errand = line.errands.front();
    const bool out = errand.way == SpillErrand::Way::out;
    trace_end(trace_, TraceThread::driver, line.started,
              {.lane = out ? TraceLane::spill_out : TraceLane::spill_in,
               .unit = errand.unit,
               .tile = errand.tile,
               .bytes = spill_->block_bytes(line.own)});
    line.errands.erase(line.errands.begin());
    if (line.error()) {
        if (!error_) error_ = line.error();
        return;
    }
    if (line.errands.empty())
        line.awaited = false;
    else if (!stopped_ && !error_)
        begin(line);
    if (errand.listener != nullptr) errand.listener->spill_ended(line.own);
}

}  // namespace penstock::zero
