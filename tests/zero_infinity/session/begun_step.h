// A step as a client makes it that begins it before its last pass, and the plain loop beside it.
#pragma once

#include "tests/zero_infinity/session/session_client.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace penstock::testing {

inline constexpr double strikes = 1e-3;  // the gradient is longer
inline constexpr double misses = 1e9;

struct BegunStep {
    std::uint64_t step = 1;
    double clip = 0;
    std::set<std::uint32_t> complete = {0, 1, 2, 3, 4};  // said of them in backward
    std::set<std::uint32_t> without_gradient = {};
    std::set<std::uint32_t> not_visited = {};
    bool begins = true;
    bool in_its_pass = false;  // not before
    bool forward = true;
};

inline zero::UpdateReport run(Client& client, PlainLoop& plain, const BegunStep& that) {
    zero::CoreSession& session = client.session();
    const zero::UpdateRequest request{.values = {.step = that.step, .learning_rate = 1e-2}, .clip = that.clip};
    const auto begin = [&] {
        ASSERT_TRUE(session.may_begin_step(request));
        session.begin_step(request);
    };
    if (that.begins && !that.in_its_pass) begin();
    session.begin_pass(Pass::training);
    for (std::uint32_t unit = 0; unit < 5 && that.forward; ++unit)
        if (!that.not_visited.contains(unit)) client.forward(unit);
    if (that.begins && that.in_its_pass) begin();
    for (std::uint32_t unit = 5; unit-- > 0;) {
        if (that.not_visited.contains(unit)) continue;
        if (that.without_gradient.contains(unit)) {
            client.forward(unit);
        } else {
            client.backward(unit, that.step);
            plain.backward(unit, that.step);
        }
        if (that.begins && that.complete.contains(unit)) session.complete(unit);
    }
    session.end_pass();
    plain.end_pass();
    const zero::UpdateReport report = client.update(that.step, that.clip);
    plain.update(that.step, zero::clip_factor(report.gradient_norm, that.clip));
    return report;
}

// Whether a pass reads what the plain loop has.
inline bool sees(Client& client, const PlainLoop& plain) {
    client.session().begin_pass(Pass::inference);
    bool right = true;
    for (const auto& [id, parameter] : plain.parameters()) {
        client.forward(id.first);
        right = right && holds(client.session().weights({id.first, id.second}), parameter.value);
    }
    client.session().end_pass();
    return right;
}

}  // namespace penstock::testing
