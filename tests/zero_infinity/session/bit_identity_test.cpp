// The open step gives the bits of the plain loop in every combination of what may be chosen.
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/combinations.h"
#include "tests/zero_infinity/session/plain_history.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace penstock::testing {
namespace {

Course course_of(const Combination& each) {
    Course course{.passes = each.accumulation, .clips = each.clips};
    course.setting = {.device = each.device, .residency = each.residency(), .depth = each.depth};
    course.setting.order = each.order;
    course.setting.deferred_share = 0.5;
    course.setting.hash_threads = each.depth % 2 == 0 ? 2 : 0;
    if (each.gradients == zero::GradientTier::nvme) course.setting.gradient_memory = zero::GradientMemory::nvme;
    if (each.held == Held::filled) course.setting.fill_bytes = some_states;
    return course;
}

TEST(BitIdentity, OfTheOpenStepInEveryCombination) {
    const std::uint64_t steps = combined_steps();
    const std::vector<Combination> all = combinations(devices());
    // What differs in its gradients, or is clipped by another norm, has a history of its own.
    std::map<std::pair<std::uint64_t, bool>, History> histories;
    for (const Combination& each : all) {
        SCOPED_TRACE(each.name());
        const Course course = course_of(each);
        History& history = histories.try_emplace({each.accumulation, each.clips}, course).first->second;
        begin_compute(1);
        {
            const TemporaryDirectory parent;
            Client client(parent / "swap", course.setting);
            for (std::uint64_t step = 1; step <= steps; ++step) {
                train_passes(client, course, step, history);
                client.update(step, course.clip(step));
            }
            ASSERT_TRUE(client.state() == history.after(steps));
        }
        end_compute();
    }
    fmt::print("RESULT bit_identity_of_the_open_step: {} combinations of {} steps each: equal bits\n", all.size(),
               steps);
}

}  // namespace
}  // namespace penstock::testing
