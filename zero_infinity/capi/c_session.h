// A session as the C interface has it: everything that a C caller can do wrong is refused before the session sees it.
#pragma once

#include "zero_infinity/capi/c_shelf.h"
#include "zero_infinity/capi/c_step.h"
#include "zero_infinity/capi/penstock_session.h"
#include "zero_infinity/ranks/capi/called_ranks.h"
#include "zero_infinity/session/core_session.h"
#include "zero_infinity/trace/trace_file.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::zero {

// One caller at a time, which Calling makes sure of. Every call may throw store::Refusal, and what the session throws.
class CSession {
   public:
    CSession(const penstock_model* model, const penstock_session_options* options);
    ~CSession();
    CSession(const CSession&) = delete;
    CSession& operator=(const CSession&) = delete;

    bool is_of_another_process() const noexcept;  // this one is a child that was forked

    // For the time of one call. Throws Refusal: busy, or poisoned after an error that ended the session.
    class Calling {
       public:
        explicit Calling(const CSession& session);
        ~Calling() { session_.calling_.store(false); }
        Calling(const Calling&) = delete;
        Calling& operator=(const Calling&) = delete;

       private:
        const CSession& session_;
    };
    void end();
    void note_failure(const std::string& why) const;  // if that is what ended the session: told with each later refusal

    penstock_session_info info() const;
    const char* note(std::size_t index);
    penstock_value value_at(std::size_t index) const;
    penstock_place place(ParameterId parameter) const;
    void compute_on(void* stream) { session_->device().compute_on(stream); }
    penstock_unit_memory memory(std::uint32_t unit) const;  // Refusal: neither visited nor resident

    void expect(const penstock_pass& pass, const penstock_visit* visits, std::size_t count);
    void begin_pass(const penstock_pass& pass);
    void visit(const Visit& visit, const Visit& held);
    void end_pass();

    penstock_gradient open_gradient(ParameterId parameter);
    enum class NoGradient : std::uint8_t { refused, made };
    penstock_gradient gradient(ParameterId parameter, NoGradient none = NoGradient::refused);
    void clear_gradient(ParameterId parameter);
    void clear_gradients();
    double gradient_norm();

    CShelf& shelf() noexcept { return shelf_; }

    bool begin_step(const penstock_step& step);
    void complete(std::uint32_t unit);
    penstock_step_report update(const penstock_step& step);
    void settle();
    std::uint32_t rank_count() noexcept { return session_->ranks().ranks(); }
    void gather(std::string_view what, std::span<const std::byte> mine, std::span<std::byte> all);
    void read(ParameterId parameter, ParameterValue value, std::span<std::byte> to);
    void write(ParameterId parameter, ParameterValue value, std::span<const float> from);

    void begin_snapshot(const std::string& path);
    penstock_snapshot_progress snapshot_progress() const;
    void finish_snapshot();

    std::size_t unit_count() const noexcept;

   private:
    void take_turn() const;
    void write_trace();
    const UnitSpec& unit(std::uint32_t index) const;
    const ParameterSpec& trainable(ParameterId parameter) const;  // own or borrowed
    void require_between_passes(const char* what) const;
    void require_durable(const char* what) const;
    void require_no_step_begun(const char* what) const;
    void require_nothing_completed(const char* what) const;
    void require_training(const char* what) const;
    const ParameterSpec& open_to_gradients(ParameterId parameter) const;

    penstock_optimizer optimizer_;
    std::size_t group_count_;
    bool durable_;
    bool snapshots_;
    std::unique_ptr<TraceFile> trace_;
    std::uint64_t traced_step_ = 1;       // that is to be updated next, since the opening
    std::unique_ptr<CalledRanks> ranks_;  // null: one rank
    std::optional<CoreSession> session_;
    std::string memory_table_;
    mutable std::string failure_;
    CShelf shelf_;
    Pass pass_ = Pass::training;  // that has begun last
    Visit visited_;               // the last visit of this pass
    std::optional<CBegunStep> begun_;
    std::vector<std::string> keys_;  // of what it began with
    std::deque<std::string> notes_;  // at their addresses for ever
    const int process_ = ::getpid();
    mutable std::atomic<bool> calling_{false};
};

}  // namespace penstock::zero
