// The functions of zero_infinity/capi/penstock_session.h, penstock_forecast.h and penstock_look.h: arguments in, status
// out. What they mean is in c_session.h, c_forecast.h and c_look.h.
#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"
#include "zero_infinity/capi/c_forecast.h"
#include "zero_infinity/capi/c_look.h"
#include "zero_infinity/capi/c_model.h"
#include "zero_infinity/capi/c_plan.h"
#include "zero_infinity/capi/c_session.h"
#include "zero_infinity/capi/parameter_value.h"
#include "zero_infinity/capi/penstock_forecast.h"
#include "zero_infinity/capi/penstock_look.h"
#include "zero_infinity/capi/penstock_session.h"
#include "zero_infinity/kernels/kernels.h"
#include "zero_infinity/ranks/capi/penstock_ranks.h"

#include <cstddef>
#include <exception>
#include <memory>
#include <utility>

using penstock::store::require;
using penstock::store::required;
using penstock::zero::CSession;
using penstock::zero::ParameterId;
using penstock::zero::value_of;

struct penstock_session {
    CSession session;
};

namespace {

// What a program cannot be without.
constexpr std::size_t least_info_bytes = offsetof(penstock_session_info, prefetch_depth);
constexpr std::size_t least_plan_bytes = sizeof(penstock_plan);
constexpr std::size_t least_rates_bytes = sizeof(penstock_rates);
constexpr std::size_t least_forecast_bytes = sizeof(penstock_forecast);
constexpr std::size_t least_place_bytes = sizeof(penstock_place);
constexpr std::size_t least_look_bytes = sizeof(penstock_look);
constexpr std::size_t least_gradient_bytes = sizeof(penstock_gradient);
constexpr std::size_t least_report_bytes = offsetof(penstock_step_report, update_ns);
constexpr std::size_t least_progress_bytes = offsetof(penstock_snapshot_progress, done_bytes);

// One call on a session: alone, and what ends the session is remembered.
template <typename Session, typename Call>
penstock_status called(Session* session, penstock_error* error, Call call) {
    return penstock::store::guarded(error, [&] {
        auto& given = required(session, "session").session;
        const CSession::Calling calling(given);
        try {
            call(given);
        } catch (const std::exception& failure) {
            given.note_failure(failure.what());
            throw;
        }
        return PENSTOCK_OK;
    });
}

// Into the caller's structure, which may be shorter or longer.
template <typename Struct>
void give(const Struct& own, Struct* place, std::size_t least_bytes, const char* name) {
    penstock::store::checked_struct(place, least_bytes, name);
    penstock::store::put(own, *place);
}

}  // namespace

uint32_t penstock_session_abi_version(void) {
    return PENSTOCK_SESSION_ABI_VERSION;
}

const char* penstock_session_loops(void) {
    return penstock::zero::kernels().name;
}

// ---------------------------------------------------------------- open and close

penstock_status penstock_session_open(const penstock_model* model, const penstock_session_options* options,
                                      penstock_session** session, penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        penstock_session*& place = required(session, "session");
        place = nullptr;
        place = new penstock_session{CSession(model, options)};
        return PENSTOCK_OK;
    });
}

penstock_status penstock_session_end(penstock_session* session, penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        required(session, "session").session.end();
        return PENSTOCK_OK;
    });
}

penstock_status penstock_session_close(penstock_session* session, penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        if (session == nullptr || !session->session.is_of_another_process()) delete session;
        return PENSTOCK_OK;
    });
}

penstock_status penstock_session_get_info(const penstock_session* session, penstock_session_info* info,
                                          penstock_error* error) {
    return called(session, error, [&](const CSession& own) { give(own.info(), info, least_info_bytes, "info"); });
}

const char* penstock_session_note(penstock_session* session, size_t index) {
    const char* note = nullptr;
    called(session, nullptr, [&](CSession& own) { note = own.note(index); });
    return note;
}

penstock_status penstock_session_value_at(const penstock_session* session, size_t index, penstock_value* value,
                                          penstock_error* error) {
    return called(session, error, [&](const CSession& own) { required(value, "value") = own.value_at(index); });
}

penstock_status penstock_session_check(const penstock_session_options* options, penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        const auto given = penstock::store::taken(options, penstock::zero::least_options_bytes, "options");
        const std::string why = penstock::zero::refusal_of_order(penstock::zero::options_of(given));
        if (!why.empty()) throw penstock::Error(penstock::ExitCode::usage, why);
        return PENSTOCK_OK;
    });
}

penstock_status penstock_session_look(const char* directory, penstock_look* look,
                                      void (*value)(const penstock_value* value, void* user), void* user,
                                      penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        penstock::store::checked_struct(look, least_look_bytes, "look");
        penstock_look own{};
        const auto manifest = penstock::zero::committed_at(&required(directory, "directory"), own);
        give(own, look, least_look_bytes, "look");
        if (!manifest || value == nullptr) return PENSTOCK_OK;
        for (const auto& [key, data] : manifest->client) {
            const penstock_value each{key.c_str(), data.data(), data.size()};
            value(&each, user);
        }
        return PENSTOCK_OK;
    });
}

penstock_status penstock_session_plan(const penstock_model* model, const penstock_session_options* options,
                                      penstock_plan* plan, penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        penstock::store::checked_struct(plan, least_plan_bytes, "plan");
        give(penstock::zero::plan_of(model, options), plan, least_plan_bytes, "plan");
        return PENSTOCK_OK;
    });
}

penstock_status penstock_session_plan_ranks(const penstock_model* model, const penstock_session_options* options,
                                            uint32_t ranks, uint32_t ranks_of_node, uint64_t passes,
                                            penstock_plan* plan, penstock_ranks_plan* of_ranks, penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        penstock::store::checked_struct(plan, least_plan_bytes, "plan");
        penstock::store::checked_struct(of_ranks, sizeof(penstock_ranks_plan), "of_ranks");
        const auto told = penstock::zero::plan_of_ranks(model, options, {ranks, ranks_of_node}, passes);
        give(told.plan, plan, least_plan_bytes, "plan");
        give(told.of_ranks, of_ranks, sizeof(penstock_ranks_plan), "of_ranks");
        return PENSTOCK_OK;
    });
}

penstock_status penstock_session_measure(const penstock_model* model, const penstock_session_options* options,
                                         double seconds, penstock_rates* rates, penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        penstock::store::checked_struct(rates, least_rates_bytes, "rates");
        give(penstock::zero::measured_rates(model, options, seconds), rates, least_rates_bytes, "rates");
        return PENSTOCK_OK;
    });
}

penstock_status penstock_session_forecast(const penstock_model* model, const penstock_session_options* options,
                                          const penstock_rates* rates, const penstock_compute* compute,
                                          penstock_forecast* forecast, penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        penstock::store::checked_struct(forecast, least_forecast_bytes, "forecast");
        give(penstock::zero::forecast_of(model, options, rates, compute), forecast, least_forecast_bytes, "forecast");
        return PENSTOCK_OK;
    });
}

penstock_status penstock_session_place(const penstock_session* session, uint32_t unit, uint32_t parameter,
                                       penstock_place* place, penstock_error* error) {
    return called(session, error, [&](const CSession& own) {
        give(own.place({unit, parameter}), place, least_place_bytes, "place");
    });
}

// ---------------------------------------------------------------- passes

penstock_status penstock_session_expect(penstock_session* session, penstock_pass pass, const penstock_visit* visits,
                                        size_t visit_count, penstock_error* error) {
    return called(session, error, [&](CSession& own) { own.expect(pass, visits, visit_count); });
}

penstock_status penstock_session_begin_pass(penstock_session* session, penstock_pass pass, penstock_error* error) {
    return called(session, error, [&](CSession& own) { own.begin_pass(pass); });
}

penstock_status penstock_session_visit(penstock_session* session, const uint32_t* units, size_t unit_count,
                                       const uint32_t* held, size_t held_count, penstock_unit_memory* memory,
                                       penstock_error* error) {
    return called(session, error, [&](CSession& own) {
        own.visit(penstock::zero::visit_of(units, unit_count, own.unit_count()),
                  penstock::zero::visit_of(held, held_count, own.unit_count()));
        for (std::size_t i = 0; memory != nullptr && i < unit_count; ++i) memory[i] = own.memory(units[i]);
    });
}

penstock_status penstock_session_end_pass(penstock_session* session, penstock_error* error) {
    return called(session, error, [&](CSession& own) { own.end_pass(); });
}

penstock_status penstock_session_compute_on(penstock_session* session, void* stream, penstock_error* error) {
    return called(session, error, [&](CSession& of) { of.compute_on(stream); });
}

penstock_status penstock_session_resident(const penstock_session* session, uint32_t unit, penstock_unit_memory* memory,
                                          penstock_error* error) {
    return called(session, error, [&](const CSession& own) { required(memory, "memory") = own.memory(unit); });
}

// ---------------------------------------------------------------- gradients

penstock_status penstock_session_open_gradient(penstock_session* session, uint32_t unit, uint32_t parameter,
                                               penstock_gradient* gradient, penstock_error* error) {
    return called(session, error, [&](CSession& own) {
        penstock::store::checked_struct(gradient, least_gradient_bytes, "gradient");
        give(own.open_gradient({unit, parameter}), gradient, least_gradient_bytes, "gradient");
    });
}

penstock_status penstock_session_gradient(penstock_session* session, uint32_t unit, uint32_t parameter,
                                          penstock_gradient* gradient, penstock_error* error) {
    return called(session, error, [&](CSession& own) {
        give(own.gradient({unit, parameter}), gradient, least_gradient_bytes, "gradient");
    });
}

penstock_status penstock_session_make_gradient(penstock_session* session, uint32_t unit, uint32_t parameter,
                                               penstock_gradient* gradient, penstock_error* error) {
    return called(session, error, [&](CSession& own) {
        give(own.gradient({unit, parameter}, CSession::NoGradient::made), gradient, least_gradient_bytes, "gradient");
    });
}

penstock_status penstock_session_clear_gradient(penstock_session* session, uint32_t unit, uint32_t parameter,
                                                penstock_error* error) {
    return called(session, error, [&](CSession& own) { own.clear_gradient({unit, parameter}); });
}

penstock_status penstock_session_clear_gradients(penstock_session* session, penstock_error* error) {
    return called(session, error, [&](CSession& own) { own.clear_gradients(); });
}

penstock_status penstock_session_gradient_norm(penstock_session* session, double* norm, penstock_error* error) {
    return called(session, error, [&](CSession& own) { required(norm, "norm") = own.gradient_norm(); });
}

// ---------------------------------------------------------------- activations

penstock_status penstock_session_lay(penstock_session* session, std::uint64_t turn, std::uint64_t bytes, void** data,
                                     penstock_error* error) {
    return called(session, error, [&](CSession& own) {
        void*& place = required(data, "data");
        place = own.shelf().lay(turn, bytes);
    });
}

penstock_status penstock_session_take(penstock_session* session, std::uint64_t turn, void** data,
                                      penstock_error* error) {
    return called(session, error, [&](CSession& own) {
        void*& place = required(data, "data");
        place = own.shelf().take(turn);
    });
}

penstock_status penstock_session_drop(penstock_session* session, std::uint64_t turn, penstock_error* error) {
    return called(session, error, [&](CSession& own) { own.shelf().drop(turn); });
}

// ---------------------------------------------------------------- steps

penstock_status penstock_session_begin_step(penstock_session* session, const penstock_step* step, int* begun,
                                            penstock_error* error) {
    return called(session, error, [&](CSession& own) {
        int& place = required(begun, "begun");
        place = own.begin_step(required(step, "step")) ? 1 : 0;
    });
}

penstock_status penstock_session_complete(penstock_session* session, uint32_t unit, penstock_error* error) {
    return called(session, error, [&](CSession& own) { own.complete(unit); });
}

penstock_status penstock_session_update(penstock_session* session, const penstock_step* step,
                                        penstock_step_report* report, penstock_error* error) {
    return called(session, error, [&](CSession& own) {
        penstock::store::checked_struct(report, least_report_bytes, "report");
        give(own.update(required(step, "step")), report, least_report_bytes, "report");
    });
}

penstock_status penstock_session_settle(penstock_session* session, penstock_error* error) {
    return called(session, error, [&](CSession& own) { own.settle(); });
}

penstock_status penstock_session_gather(penstock_session* session, const char* what, const void* mine, void* everyones,
                                        uint64_t bytes, penstock_error* error) {
    return called(session, error, [&](CSession& own) {
        require(mine != nullptr && everyones != nullptr && bytes > 0, "a gather of {} bytes wants memory for them",
                bytes);
        const std::span all(static_cast<std::byte*>(everyones), bytes * own.rank_count());
        require(what != nullptr, "what is NULL");
        own.gather(what, {static_cast<const std::byte*>(mine), bytes}, all);
    });
}

penstock_status penstock_session_read(penstock_session* session, uint32_t unit, uint32_t parameter, penstock_what what,
                                      void* data, uint64_t bytes, penstock_error* error) {
    return called(session, error, [&](CSession& own) {
        require(data != nullptr, "data is NULL");
        own.read({unit, parameter}, value_of(what), {static_cast<std::byte*>(data), bytes});
    });
}

penstock_status penstock_session_write(penstock_session* session, uint32_t unit, uint32_t parameter, penstock_what what,
                                       const float* data, uint64_t bytes, penstock_error* error) {
    return called(session, error, [&](CSession& own) {
        require(data != nullptr, "data is NULL");
        require(bytes % sizeof(float) == 0, "{} bytes are no floats", bytes);
        own.write({unit, parameter}, value_of(what), {data, bytes / sizeof(float)});
    });
}

// ---------------------------------------------------------------- snapshots

penstock_status penstock_session_begin_snapshot(penstock_session* session, const char* path, penstock_error* error) {
    return called(session, error, [&](CSession& own) { own.begin_snapshot(&required(path, "path")); });
}

penstock_status penstock_session_snapshot_progress(const penstock_session* session,
                                                   penstock_snapshot_progress* progress, penstock_error* error) {
    return called(session, error, [&](const CSession& own) {
        give(own.snapshot_progress(), progress, least_progress_bytes, "progress");
    });
}

penstock_status penstock_session_finish_snapshot(penstock_session* session, penstock_error* error) {
    return called(session, error, [&](CSession& own) { own.finish_snapshot(); });
}
