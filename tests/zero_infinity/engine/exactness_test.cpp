// Equality before speed: any tier, device, prefetch depth and activation policy gives the bits of the plain in-memory
// loop.
#include "tests/zero_infinity/engine/reference_loop.h"
#include "tests/zero_infinity/engine/run.h"
#include "tests/zero_infinity/update_way.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <random>

namespace penstock::testing {
namespace {

enum class Rooms : std::uint8_t { enough, none, random };  // that compute is told of

struct Case {
    std::string name;
    bool bf16 = true;
    zero::Residency residency;
    zero::DeviceKind device = zero::DeviceKind::cpu;
    std::uint32_t depth = 2;
    engine::Activations activations = engine::Activations::recompute;
    std::size_t micro_batches = 1;
    bool tied_head = false;
    bool frozen_gain = false;
    bool frozen_embedding = false;
    std::uint32_t staging_tiles = 3;
    std::optional<aio::BackendKind> backend = std::nullopt;
    unsigned worker_threads = 1;
    zero::UpdateWay order = zero::UpdateWay::after_backward;
    std::uint64_t graph_budget_bytes = engine::unbounded_graphs;
    std::uint64_t activation_bytes = 0;  // of a shelf
    std::uint64_t fill_bytes = 0;        // of host memory beyond what is needed, which units are kept in
    Rooms rooms = Rooms::enough;
};

void PrintTo(const Case& each, std::ostream* out) {
    *out << each.name;
}

engine::Room room_of(Rooms rooms, std::uint32_t seed) {
    constexpr auto all = std::numeric_limits<std::uint64_t>::max();
    if (rooms == Rooms::enough) return [](std::uint64_t) { return all; };
    if (rooms == Rooms::none) return [](std::uint64_t) { return std::uint64_t{0}; };
    return [draw = std::mt19937(seed)](std::uint64_t) mutable { return draw() % 3 == 0 ? 0 : all; };
}

RunOptions run_options(const Case& each, const std::string& directory) {
    RunOptions options = toy_run(directory);
    options.model.tied_head = each.tied_head;
    options.model.frozen_gain = each.frozen_gain;
    options.model.frozen_embedding = each.frozen_embedding;
    options.micro_batches = each.micro_batches;
    options.session.codec = each.bf16 ? "split" : "plain_fp32";
    options.session.gradient_type = each.bf16 ? zero::PlaneType::bf16 : zero::PlaneType::fp32;
    options.session.residency = each.residency;
    options.session.prefetch_depth = each.depth;
    options.session.staging_tiles = each.staging_tiles;
    options.session.backend = each.backend;
    options.session.worker_threads = each.worker_threads;
    zero::update_by(each.order, options.session);
    if (each.order == zero::UpdateWay::within) options.session.engine.gradient_clipping = 0;
    // Not all steps are clipped, and not only the first ones.
    if (each.order == zero::UpdateWay::speculative)
        options.session.engine.gradient_clipping = each.micro_batches == 3 ? 1.08 : 1.7;
    options.session.engine.activations = each.activations;
    options.session.engine.graph_budget_bytes = each.graph_budget_bytes;
    options.session.activation_bytes = each.activation_bytes;
    options.session.device.kind = each.device;
    options.session.device.budget_bytes = 4 << 20;
    options.session.device.copy_delay = std::chrono::microseconds(200);
    if (each.fill_bytes > 0) fill_host_budget(options, each.fill_bytes);
    return options;
}

// Only where a budget or room runs short, and then of some units or all.
void expect_given_up(const Case& each, const RunResult& run, const RunOptions& options) {
    const bool short_of_room = each.activations == engine::Activations::automatic &&
                               (each.rooms != Rooms::enough || each.graph_budget_bytes != engine::unbounded_graphs);
    ASSERT_EQ(run.given_up > 0, short_of_room);
    const std::size_t calls = options.steps * each.micro_batches * static_cast<std::size_t>(options.model.layers + 1);
    ASSERT_EQ(run.given_up == calls, each.rooms == Rooms::none && each.micro_batches == 1) << "of " << calls;
}

class Exactness : public ::testing::TestWithParam<Case> {};

TEST_P(Exactness, TwentyStepsGiveTheBitsOfThePlainLoop) {
    const TemporaryDirectory directory;
    RunOptions options = run_options(GetParam(), directory.path());
    const std::uint32_t seed = std::random_device{}();
    SCOPED_TRACE(seed);
    options.session.engine.room = room_of(GetParam().rooms, seed);
    const RunResult run = run_toy(options);
    expect_given_up(GetParam(), run, options);

    ReferenceOptions reference_options;
    using Weights = ReferenceOptions::Weights;
    reference_options.weights = GetParam().bf16 ? Weights::bf16_away : Weights::fp32;
    reference_options.bf16_gradients = GetParam().bf16;
    reference_options.clipping = options.session.engine.gradient_clipping;
    ReferenceLoop reference(make_toy_model(options.model), reference_options);
    for (std::uint64_t step = 1; step <= options.steps; ++step) {
        const auto expected = reference.train_batch(toy_step(step, options), step, options.learning_rate);
        ASSERT_EQ(run.losses.at(step - 1), expected.loss) << "step " << step;
        ASSERT_EQ(run.norms.at(step - 1), expected.norm) << "step " << step;
    }
    ASSERT_LT(run.losses.back(), run.losses.front());
    ASSERT_GT(run.norms.front(), options.session.engine.gradient_clipping) << "clipping was not exercised";
    ASSERT_EQ(run.away_bytes > 0, GetParam().activation_bytes > 0);
    ASSERT_EQ(run.updated_again > 0, GetParam().order == zero::UpdateWay::speculative);

    const Snapshot snapshot = read_snapshot(options.session.swap_directories[0], options.session.job);
    const auto model = make_toy_model(options.model);
    EXPECT_EQ(decode_states(snapshot, *model, options.session.codec, options.session.tile_numel), reference.states());
}

constexpr zero::Residency on_nvme{zero::Tier::nvme, zero::Tier::nvme};
constexpr zero::Residency in_host_memory{zero::Tier::host, zero::Tier::host};

// Nothing but what the session holds and moves, or a device: session/ tries those in each order, and BitIdentity here.
bool is_the_sessions(const Case& each) {
    return each.device == zero::DeviceKind::emulated ||
           (each.activations == engine::Activations::recompute && each.activation_bytes == 0 &&
            each.micro_batches == 1 && !each.tied_head && !each.frozen_gain && !each.frozen_embedding);
}

// What the engine does in each order, the rest in one more order each.
std::vector<Case> in_other_orders(std::vector<Case> cases) {
    using enum zero::UpdateWay;
    std::size_t turn = 0;
    for (std::size_t index = 0, count = cases.size(); index < count; ++index) {
        std::vector<zero::UpdateWay> orders = {deferred, within};
        const zero::Residency residency = cases[index].residency;
        if (residency.weights == zero::Tier::nvme && residency.states == zero::Tier::nvme &&
            cases[index].fill_bytes == 0)
            orders.push_back(speculative);  // clipped
        if (is_the_sessions(cases[index])) orders = {orders[turn++ % orders.size()]};
        for (const zero::UpdateWay order : orders) {
            cases.push_back(cases[index]);
            cases.back().name += "_" + std::string(word_of(order));
            cases.back().order = order;
        }
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(
    Tiers, Exactness,
    ::testing::ValuesIn(in_other_orders(
        {Case{.name = "split_nvme_cpu", .residency = on_nvme},
         Case{.name = "split_host_cpu", .residency = in_host_memory},
         Case{.name = "split_nvme_emulated", .residency = on_nvme, .device = zero::DeviceKind::emulated},
         Case{.name = "split_host_emulated", .residency = in_host_memory, .device = zero::DeviceKind::emulated},
         Case{.name = "plain_nvme_cpu", .bf16 = false, .residency = on_nvme},
         Case{.name = "plain_host_cpu", .bf16 = false, .residency = in_host_memory},
         Case{.name = "plain_nvme_emulated", .bf16 = false, .residency = on_nvme, .device = zero::DeviceKind::emulated},
         Case{.name = "plain_host_emulated",
              .bf16 = false,
              .residency = in_host_memory,
              .device = zero::DeviceKind::emulated},
         Case{.name = "states_on_nvme_weights_in_host", .residency = {zero::Tier::host, zero::Tier::nvme}},
         Case{.name = "weights_on_nvme_states_in_host", .residency = {zero::Tier::nvme, zero::Tier::host}},
         Case{.name = "some_weights_kept", .residency = on_nvme, .fill_bytes = 100 << 10},
         Case{.name = "some_weights_kept_emulated",
              .residency = on_nvme,
              .device = zero::DeviceKind::emulated,
              .fill_bytes = 100 << 10},
         Case{.name = "weights_and_some_states_kept", .residency = on_nvme, .fill_bytes = 400 << 10},
         Case{.name = "three_threads_on_nvme", .residency = on_nvme, .worker_threads = 3},
         Case{.name = "three_threads_in_host_memory", .residency = in_host_memory, .worker_threads = 3},
         Case{.name = "depth_0", .residency = on_nvme, .depth = 0},
         Case{.name = "depth_8_emulated", .residency = on_nvme, .device = zero::DeviceKind::emulated, .depth = 8},
         Case{.name = "one_staging_tile", .residency = on_nvme, .staging_tiles = 1},
         Case{.name = "nine_staging_tiles", .residency = on_nvme, .staging_tiles = 9},
         Case{.name = "libaio_backend", .residency = on_nvme, .backend = aio::BackendKind::libaio},
         Case{.name = "threads_backend", .residency = on_nvme, .backend = aio::BackendKind::threads},
         Case{.name = "kept_graphs", .residency = on_nvme, .activations = engine::Activations::retain},
         Case{.name = "graphs_of_some_units_kept",
              .residency = on_nvme,
              .activations = engine::Activations::retain,
              .micro_batches = 3,
              .graph_budget_bytes = 300 << 10},
         Case{.name = "activations_on_nvme", .residency = on_nvme, .micro_batches = 3, .activation_bytes = 16 << 10},
         Case{.name = "activations_on_nvme_emulated",
              .residency = on_nvme,
              .device = zero::DeviceKind::emulated,
              .tied_head = true,
              .activation_bytes = 12 << 10},
         Case{.name = "activations_on_nvme_and_some_graphs_kept",
              .residency = in_host_memory,
              .activations = engine::Activations::retain,
              .micro_batches = 3,
              .graph_budget_bytes = 100 << 10,
              .activation_bytes = 16 << 10},
         Case{.name = "kept_graphs_emulated",
              .residency = on_nvme,
              .device = zero::DeviceKind::emulated,
              .activations = engine::Activations::retain},
         Case{.name = "auto", .residency = on_nvme, .activations = engine::Activations::automatic},
         Case{.name = "auto_without_room",
              .residency = on_nvme,
              .activations = engine::Activations::automatic,
              .rooms = Rooms::none},
         Case{.name = "auto_given_up_at_random",
              .residency = on_nvme,
              .activations = engine::Activations::automatic,
              .micro_batches = 3,
              .rooms = Rooms::random},
         Case{.name = "auto_given_up_at_random_plain_emulated",
              .bf16 = false,
              .residency = on_nvme,
              .device = zero::DeviceKind::emulated,
              .activations = engine::Activations::automatic,
              .micro_batches = 3,
              .rooms = Rooms::random},
         Case{.name = "auto_given_up_at_random_tied_head",
              .residency = in_host_memory,
              .activations = engine::Activations::automatic,
              .tied_head = true,
              .rooms = Rooms::random},
         Case{.name = "auto_given_up_at_random_frozen",
              .residency = on_nvme,
              .activations = engine::Activations::automatic,
              .micro_batches = 3,
              .frozen_gain = true,
              .frozen_embedding = true,
              .rooms = Rooms::random},
         Case{.name = "auto_given_up_at_random_to_nvme",
              .residency = on_nvme,
              .activations = engine::Activations::automatic,
              .micro_batches = 3,
              .activation_bytes = 16 << 10,
              .rooms = Rooms::random},
         Case{.name = "auto_within_a_budget",
              .residency = on_nvme,
              .activations = engine::Activations::automatic,
              .micro_batches = 3,
              .graph_budget_bytes = 300 << 10},
         Case{.name = "accumulation_of_3", .residency = on_nvme, .micro_batches = 3},
         Case{.name = "accumulation_of_3_emulated_kept",
              .residency = on_nvme,
              .device = zero::DeviceKind::emulated,
              .activations = engine::Activations::retain,
              .micro_batches = 3},
         Case{.name = "tied_head", .residency = on_nvme, .tied_head = true},
         Case{.name = "tied_head_emulated",
              .residency = on_nvme,
              .device = zero::DeviceKind::emulated,
              .tied_head = true},
         Case{.name = "frozen_embedding", .residency = on_nvme, .frozen_embedding = true},
         Case{.name = "frozen_gain", .residency = on_nvme, .frozen_gain = true},
         Case{.name = "frozen_gain_emulated",
              .residency = on_nvme,
              .device = zero::DeviceKind::emulated,
              .frozen_gain = true}})),
    [](const auto& instance) { return instance.param.name; });

// A tied weight's uses are summed apart, so accumulation has no order of its own to be compared with; tiers still
// agree.
TEST(Exactness, TiedHeadWithAccumulationIsTheSameOnEveryTier) {
    Case each{.name = "", .residency = on_nvme, .micro_batches = 3, .tied_head = true};
    const TemporaryDirectory one, other;
    const RunOptions nvme = run_options(each, one.path());
    each.residency = in_host_memory;
    each.device = zero::DeviceKind::emulated;
    each.activations = engine::Activations::retain;
    const RunOptions host = run_options(each, other.path());
    EXPECT_EQ(run_toy(nvme).losses, run_toy(host).losses);
    EXPECT_EQ(read_snapshot(nvme.session.swap_directories[0], "toy"),
              read_snapshot(host.session.swap_directories[0], "toy"));
}

TEST(Exactness, ResumingGivesTheBitsOfTheRunThatWasNotInterrupted) {
    const TemporaryDirectory one, other;
    RunOptions whole = toy_run(one.path());
    RunOptions parts = toy_run(other.path());
    whole.steps = 12;
    run_toy(whole);
    for (const std::uint64_t until : {std::uint64_t{5}, std::uint64_t{6}, std::uint64_t{12}}) {
        parts.steps = until;
        parts.session.residency = until == 6 ? in_host_memory : on_nvme;  // tiers may change at a resume
        run_toy(parts);
    }
    EXPECT_EQ(read_snapshot(whole.session.swap_directories[0], "toy"),
              read_snapshot(parts.session.swap_directories[0], "toy"));
}

Snapshot whole_run(const TemporaryDirectory& directory, std::uint64_t steps) {
    RunOptions options = toy_run(directory.path());
    options.steps = steps;
    run_toy(options);
    return read_snapshot(options.session.swap_directories[0], "toy");
}

// Generations count commits, so they differ.
void expect_same_state(const Snapshot& one, const Snapshot& other) {
    EXPECT_EQ(one.objects, other.objects);
    EXPECT_EQ(one.client, other.client);
}

TEST(Exactness, DurabilityChangesNoBitAndAResumeGoesOnFromTheLastCommit) {
    const TemporaryDirectory reference;
    const Snapshot expected = whole_run(reference, 13);
    for (const zero::Residency residency :
         {on_nvme, in_host_memory, zero::Residency{zero::Tier::host, zero::Tier::nvme},
          zero::Residency{zero::Tier::nvme, zero::Tier::host}}) {
        const TemporaryDirectory directory;
        RunOptions options = toy_run(directory.path());
        options.session.residency = residency;
        options.session.durability = {3};
        const std::string& store = options.session.swap_directories[0];
        options.steps = 5;
        run_toy(options, AtEnd::leave);
        EXPECT_EQ(read_snapshot(store, "toy").client.at("step"), "3");
        options.steps = 8;
        EXPECT_EQ(run_toy(options, AtEnd::leave).losses.size(), 5U);
        EXPECT_EQ(read_snapshot(store, "toy").client.at("step"), "6");
        options.steps = 10;
        run_toy(options, AtEnd::settle);  // out of turn
        EXPECT_EQ(read_snapshot(store, "toy").client.at("step"), "10");
        options.steps = 13;
        EXPECT_EQ(run_toy(options, AtEnd::settle).losses.size(), 3U);
        expect_same_state(read_snapshot(store, "toy"), expected);
    }
}

TEST(Exactness, AScratchRunGivesTheSameLossesAndKeepsNothing) {
    const TemporaryDirectory one, other;
    RunOptions durable = toy_run(one.path());
    RunOptions scratch = toy_run(other.path());
    scratch.session.durability = zero::Durability::scratch;
    for (const zero::Residency residency : {on_nvme, in_host_memory}) {
        scratch.session.residency = residency;
        const RunResult run = run_toy(scratch);
        EXPECT_FALSE(run.resumed);
        EXPECT_EQ(run.losses.size(), 20U);
    }
    const auto losses = run_toy(scratch).losses;
    EXPECT_EQ(losses, run_toy(durable).losses);
    const auto bytes = [](const RunOptions& options) {
        return std::filesystem::file_size(options.session.swap_directories[0] + "/data");
    };
    EXPECT_EQ(2 * bytes(scratch), bytes(durable)) << "one slot";
}

TEST(Exactness, AScratchRunOnADurableStoreLeavesItAsItWas) {
    const TemporaryDirectory directory, reference;
    RunOptions options = toy_run(directory.path());
    options.steps = 4;
    run_toy(options);
    const Snapshot before = read_snapshot(options.session.swap_directories[0], "toy");
    options.session.durability = zero::Durability::scratch;
    options.steps = 9;
    const RunResult scratch = run_toy(options);
    EXPECT_TRUE(scratch.resumed);
    EXPECT_EQ(read_snapshot(options.session.swap_directories[0], "toy"), before);
    options.session.durability = zero::Durability::every_step;
    EXPECT_EQ(run_toy(options).losses, scratch.losses);
    expect_same_state(read_snapshot(options.session.swap_directories[0], "toy"), whole_run(reference, 9));
}

}  // namespace
}  // namespace penstock::testing
