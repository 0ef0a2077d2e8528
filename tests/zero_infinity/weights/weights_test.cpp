// From a source into a store and out again by name: what comes out is what went in, wherever it lies.
#include "tests/temporary_directory.h"
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/optimizer/update.h"
#include "zero_infinity/weights/fill_store.h"
#include "zero_infinity/weights/read_out.h"

#include "aio/io.h"
#include "aio/words/error.h"
#include "swap/store/blocking.h"
#include "tests/aio/fakes/forwarding_backend.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

namespace penstock::testing {
namespace {

constexpr std::uint64_t tile_numel = 4096;

// A parameter that ends within a tile, one that lies in four, frozen ones on both sides of a tile's border.
std::vector<zero::UnitSpec> unit_specs() {
    return {
        {"small", {{"a", {70}}, {"b", {3, 5}}}},
        {"large",
         {{"norm", {768}},
          {"fixed.first", {4000}, zero::Training::frozen},
          {"matrix", {100, 130}},
          {"fixed.second", {200}, zero::Training::frozen},
          {"last", {1}}}},
        {"frozen", {{"only", {5000}, zero::Training::frozen}}},
    };
}

zero::ModelLayout make_layout(const char* codec, zero::Partition partition, double initial_accumulator) {
    zero::ParameterGroups optimizers(zero::make_adagrad({.initial_accumulator = initial_accumulator}));
    const zero::StateFormat format = state_format(*zero::find_codec(codec), optimizers.others());
    return zero::ModelLayout({.units = unit_specs(),
                              .format = format,
                              .optimizers = std::move(optimizers),
                              .tile_numel = tile_numel,
                              .partition = partition});
}

// What an element is: exact in bf16, and of another value for each neighbour and parameter.
float value_of(const zero::NamedParameter& parameter, std::uint64_t element) {
    const auto hash = static_cast<std::uint64_t>(parameter.name().back()) * 31 + parameter.unit.name.size();
    return static_cast<float>((hash + element * 7) % 251) - 100;
}

zero::WeightFunction known_values() {
    return zero::WeightFunction(
        [](const zero::NamedParameter& parameter, std::uint64_t first, std::span<float> values) {
            for (std::uint64_t index = 0; index < values.size(); ++index)
                values[index] = value_of(parameter, first + index);
        });
}

// Fails one write, by number; none: 0.
class FailingWrite final : public ForwardingBackend {
   public:
    FailingWrite(std::unique_ptr<aio::Backend> inner, std::size_t& writes, const std::size_t& failing)
        : ForwardingBackend(std::move(inner)), writes_(writes), failing_(failing) {}
    bool submit(aio::Attempt& attempt) override {
        if (attempt.kind != aio::IoKind::write || ++writes_ != failing_) return inner_->submit(attempt);
        attempt.result = -EIO;
        attempt.next = nullptr;
        failed_ = &attempt;
        return true;
    }
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        return failed_ != nullptr ? std::exchange(failed_, nullptr) : inner_->reap(timeout);
    }
    const char* name() const noexcept override { return "failing write"; }

   private:
    std::size_t& writes_;
    const std::size_t& failing_;
    aio::Attempt* failed_ = nullptr;
};

struct StoreCase {
    const char* codec = "split";
    std::size_t directories = 1;
    zero::Partition partition = {};
};

// A store of its own that is filled from a source and committed.
class WeightStore {
   public:
    explicit WeightStore(const StoreCase& wanted, double initial_accumulator = 0.5)
        : layout(make_layout(wanted.codec, wanted.partition, initial_accumulator)) {
        for (std::size_t index = 0; index < wanted.directories; ++index)
            directories_.emplace_back(scratch_ / std::to_string(index), "test");
        for (store::StoreDirectory& directory : directories_) pointers_.push_back(&directory);
        io = std::make_unique<aio::Io>(
            std::make_unique<FailingWrite>(aio::open_backend(directories_.front().lock_fd(), {}).backend, writes,
                                           failing_write),
            aio::IoLimits{});
        store =
            store::TensorStore::create(*io, pointers_, {.objects = {layout.objects().begin(), layout.objects().end()}});
    }

    void fill(zero::WeightSource& source, const store::WorkProgress& progress = {}) {
        fill_store({.io = io.get(), .store = store.get(), .layout = &layout}, source, progress);
        commit_blocking(*io, *store, {});
    }

    void read(const zero::ReadOut& what, zero::WeightSink& sink) {
        const zero::ReadTile read = zero::blocking_reads(*io, *store);
        zero::read_out({.layout = &layout,
                        .read =
                            [&](store::TileId tile, std::span<std::byte> memory) {
                                ++tiles_read;
                                read(tile, memory);
                            }},
                       what, sink);
    }

   private:
    TemporaryDirectory scratch_;
    std::vector<store::StoreDirectory> directories_;
    std::vector<store::StoreDirectory*> pointers_;

   public:
    zero::ModelLayout layout;
    std::unique_ptr<aio::Io> io;
    std::unique_ptr<store::TensorStore> store;
    std::size_t tiles_read = 0;
    std::size_t writes = 0;
    std::size_t failing_write = 0;
};

// Values by "name value"; each must come whole and in order.
class ReadBack final : public zero::WeightSink {
   public:
    void write(const zero::NamedParameter& parameter, const zero::ValueStretch& stretch) override {
        static constexpr const char* words[] = {"weight", "master", "moment0", "moment1"};
        const std::string name = parameter.name() + " " + words[static_cast<int>(stretch.value)];
        std::vector<float>& values = found[name];
        if (values.empty()) begins[name] = stretch.first;
        EXPECT_EQ(stretch.first, begins[name] + values.size()) << name;
        for (std::uint64_t index = 0; index < stretch.numel; ++index) values.push_back(element(stretch, index));
        ++stretches[name];
    }
    std::map<std::string, std::vector<float>> found;
    std::map<std::string, std::uint64_t> begins;
    std::map<std::string, std::size_t> stretches;

   private:
    static float element(const zero::ValueStretch& stretch, std::uint64_t index) {
        float value = 0;
        if (stretch.type == zero::PlaneType::fp32) {
            std::memcpy(&value, stretch.data + 4 * index, 4);
        } else {
            EXPECT_EQ(stretch.type, zero::PlaneType::bf16);
            std::uint16_t upper = 0;
            std::memcpy(&upper, stretch.data + 2 * index, 2);
            value = zero::join_master({upper, 0});
        }
        return value;
    }
};

std::vector<float> expected_values(const zero::NamedParameter& parameter, std::uint64_t first = 0,
                                   std::uint64_t numel = UINT64_MAX) {
    std::vector<float> values;
    for (std::uint64_t index = first; index < std::min(first + numel, parameter.spec.numel()); ++index)
        values.push_back(value_of(parameter, index));
    return values;
}

const std::vector<zero::ParameterValue> all_values = {zero::ParameterValue::weight, zero::ParameterValue::master,
                                                      zero::ParameterValue::moment0};

class WeightRoundTrip : public ::testing::TestWithParam<StoreCase> {};

TEST_P(WeightRoundTrip, WhatIsReadOutIsWhatWasFilledIn) {
    WeightStore made(GetParam());
    zero::WeightFunction source = known_values();
    made.fill(source);
    ReadBack out;
    made.read({.values = all_values}, out);
    std::size_t values = 0;
    for (const zero::UnitLayout& unit : made.layout.units()) {
        for (const zero::ParameterSpec& spec : unit.spec().parameters) {
            const zero::NamedParameter parameter{unit.spec(), spec};
            EXPECT_EQ(out.found[parameter.name() + " weight"], expected_values(parameter)) << parameter.name();
            ++values;
            if (spec.training == zero::Training::frozen) continue;
            EXPECT_EQ(out.found[parameter.name() + " master"], expected_values(parameter)) << parameter.name();
            EXPECT_EQ(out.found[parameter.name() + " moment0"], std::vector<float>(spec.numel(), 0.5F));
            values += 2;
        }
    }
    EXPECT_EQ(out.found.size(), values) << "a frozen parameter has a weight only";
    EXPECT_EQ(out.stretches["large.matrix weight"], 4U);
    EXPECT_EQ(out.stretches["large.fixed.second weight"], 2U);
}

INSTANTIATE_TEST_SUITE_P(Stores, WeightRoundTrip,
                         ::testing::Values(StoreCase{"split"}, StoreCase{"plain_fp32"}, StoreCase{"plain_bf16"},
                                           StoreCase{"split", 3}, StoreCase{"plain_fp32", 2}),
                         [](const auto& instance) {
                             return std::string(instance.param.codec) + "_" +
                                    std::to_string(instance.param.directories);
                         });

TEST(Weights, ACompactStoreGivesWhatItsCodecHolds) {
    WeightStore made({.codec = "compact"}, 0);
    zero::WeightFunction source = known_values();
    made.fill(source);
    ReadBack out;
    made.read({.values = all_values}, out);
    const zero::NamedParameter matrix{made.layout.unit(1).spec(), made.layout.unit(1).spec().parameters[2]};
    EXPECT_EQ(out.found["large.matrix weight"], expected_values(matrix)) << "integers that bf16 holds";
    EXPECT_EQ(out.found["large.matrix master"], expected_values(matrix));
    EXPECT_EQ(out.found["large.matrix moment0"], std::vector<float>(13000, 0.0F));
}

// What the ranks hold together is the whole, each element once.
TEST(Weights, EachRankFillsAndReadsItsOwnShard) {
    std::map<std::string, std::map<std::uint64_t, std::vector<float>>> parts;
    for (const std::uint32_t rank : {0U, 1U, 2U}) {
        WeightStore made({.partition = {rank, 3}});
        zero::WeightFunction source = known_values();
        made.fill(source);
        ReadBack out;
        made.read({.values = all_values}, out);
        for (auto& [name, values] : out.found) parts[name][out.begins[name]] = std::move(values);
    }
    const zero::ModelLayout whole_model = make_layout("split", {}, 0);
    for (const zero::UnitLayout& unit : whole_model.units()) {
        for (const zero::ParameterSpec& spec : unit.spec().parameters) {
            const zero::NamedParameter parameter{unit.spec(), spec};
            std::vector<float> whole;
            for (const auto& [first, values] : parts[parameter.name() + " weight"]) {
                EXPECT_EQ(first, whole.size()) << parameter.name();
                whole.insert(whole.end(), values.begin(), values.end());
            }
            EXPECT_EQ(whole, expected_values(parameter)) << parameter.name();
        }
    }
}

TEST(Weights, OnlyTilesThatHoldSomethingWantedAreRead) {
    WeightStore made({});
    zero::WeightFunction source = known_values();
    made.fill(source);
    ReadBack out;
    made.read({.values = {zero::ParameterValue::weight},
               .wanted = [](const zero::NamedParameter& parameter) { return parameter.name() == "large.last"; }},
              out);
    EXPECT_EQ(made.tiles_read, 1U);
    EXPECT_EQ(out.found.size(), 1U);
    made.tiles_read = 0;
    made.read({.values = {zero::ParameterValue::moment0},
               .wanted = [](const zero::NamedParameter& parameter) { return parameter.unit.name == "small"; }},
              out);
    EXPECT_EQ(made.tiles_read, 1U) << "the states, not the weights";
    made.tiles_read = 0;
    made.read({.values = {zero::ParameterValue::master},
               .wanted = [](const zero::NamedParameter& parameter) { return parameter.unit.name == "frozen"; }},
              out);
    EXPECT_EQ(made.tiles_read, 0U) << "a frozen parameter has no master";
}

TEST(Weights, ASourceIsAskedForEachElementOnceAndInOrder) {
    WeightStore made({});
    std::vector<std::string> order;
    std::map<std::string, std::uint64_t> next;
    zero::WeightFunction source(
        [&](const zero::NamedParameter& parameter, std::uint64_t first, std::span<float> values) {
            if (order.empty() || order.back() != parameter.name()) order.push_back(parameter.name());
            EXPECT_EQ(first, next[parameter.name()]);
            next[parameter.name()] += values.size();
            EXPECT_LE(values.size(), tile_numel);
        });
    std::uint64_t done = 0, total = 0;
    made.fill(source, [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
        EXPECT_GT(done_bytes, done);
        done = done_bytes;
        total = total_bytes;
    });
    EXPECT_EQ(order, (std::vector<std::string>{"small.a", "small.b", "large.norm", "large.matrix", "large.last",
                                               "large.fixed.first", "large.fixed.second", "frozen.only"}));
    for (const zero::UnitLayout& unit : made.layout.units())
        for (const zero::ParameterSpec& spec : unit.spec().parameters)
            EXPECT_EQ(next[unit.spec().name + "." + spec.name], spec.numel());
    EXPECT_EQ(done, total);
}

TEST(Weights, WhatASourceOrASinkThrowsComesThrough) {
    WeightStore made({});
    zero::WeightFunction broken([](const zero::NamedParameter& parameter, std::uint64_t, std::span<float>) {
        if (parameter.name() == "large.matrix") throw Error(ExitCode::usage, "no such tensor");
    });
    EXPECT_THROW(made.fill(broken), Error);
    EXPECT_FALSE(made.store->generation().has_value());
    zero::WeightFunction source = known_values();
    made.fill(source);
    struct Full final : zero::WeightSink {
        void write(const zero::NamedParameter&, const zero::ValueStretch&) override {
            throw std::runtime_error("the disk is full");
        }
    } full;
    EXPECT_THROW(made.read({.values = all_values}, full), std::runtime_error);
    ReadBack out;
    made.read({.values = {zero::ParameterValue::weight}}, out);  // the store is as it was
    EXPECT_FALSE(out.found.empty());
}

TEST(Weights, AWriteThatFailsEndsTheFillingOnceTheOthersHaveEnded) {
    WeightStore made({});
    zero::WeightFunction source = known_values();
    made.writes = 0;
    fill_store({.io = made.io.get(), .store = made.store.get(), .layout = &made.layout}, source, {});
    const std::size_t all = made.writes;
    EXPECT_GT(all, 8U);
    for (made.failing_write = 1; made.failing_write <= all; ++made.failing_write) {
        made.writes = 0;
        EXPECT_THROW(made.fill(source), Error) << made.failing_write;
        EXPECT_TRUE(made.io->idle());
        EXPECT_FALSE(made.store->generation().has_value());
    }
    made.failing_write = 0;
    made.fill(source);
    ReadBack out;
    made.read({.values = {zero::ParameterValue::weight}}, out);
    EXPECT_FALSE(out.found.empty());
}

TEST(WeightsDeathTest, AMomentThatIsNotKeptIsAContractViolation) {
    WeightStore made({});
    zero::WeightFunction source = known_values();
    made.fill(source);
    ReadBack out;
    EXPECT_DEATH(made.read({.values = {zero::ParameterValue::moment1}}, out), "moment 1 of 1");
}

}  // namespace
}  // namespace penstock::testing
