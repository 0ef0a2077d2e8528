// A client of the open step without torch, and the same model in plain memory to compare it with.
#pragma once

#include "tests/zero_infinity/ample_room.h"
#include "tests/zero_infinity/session/compute.h"
#include "tests/zero_infinity/session/gated_adamw.h"
#include "tests/zero_infinity/update_way.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/plan/session_plan.h"
#include "zero_infinity/session/core_session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {

using zero::ParameterId;
using zero::Pass;
using zero::PassVisits;
using zero::Visit;
using Values = std::vector<float>;

inline std::vector<zero::UnitSpec> units(zero::Unused unused = zero::Unused::refused) {
    return {
        {"first", {{"table", {70, 100}}}},
        {"second", {{"a", {50, 100}}, {"fixed", {300}, zero::Training::frozen}, {"b", {9}}}},
        {"third", {{"expert", {5000}, zero::Training::trainable, unused}}},
        {"fourth", {{"a", {12345}}}},
        {"last", {{"norm", {64}}}, {{0, 0}}},  // borrows the table
    };
}

// Any of them may have no gradient in a step.
inline std::vector<zero::UnitSpec> all_skippable(std::vector<zero::UnitSpec> all) {
    for (zero::UnitSpec& unit : all)
        for (zero::ParameterSpec& parameter : unit.parameters) parameter.unused = zero::Unused::skipped;
    return all;
}

inline float first_value(std::uint32_t unit, std::uint32_t index, std::uint64_t element) {
    return static_cast<float>((unit * 31 + index * 17 + element * 7) % 97) / 64 - 0.5F;
}

// What a client adds at one visit of backward: of the weights that it sees, and of when.
inline Values gradient_of(const float* weights, std::uint64_t numel, std::uint64_t time) {
    Values gradient(numel);
    for (std::uint64_t i = 0; i < numel; ++i)
        gradient[i] = 0.01F * weights[i] + 0.001F * static_cast<float>((i + 3 * time) % 11) - 0.004F;
    return gradient;
}

inline std::uint64_t numel_of(const std::vector<zero::UnitSpec>& all, ParameterId id) {
    const zero::UnitSpec& unit = all[id.unit];
    if (id.index < unit.parameters.size()) return unit.parameters[id.index].numel();
    const zero::BorrowedSpec& borrowed = unit.borrowed[id.index - unit.parameters.size()];
    return all[borrowed.owner].parameters[borrowed.parameter].numel();
}

// Trainable ones, own and borrowed.
inline std::vector<ParameterId> parameters_of(const std::vector<zero::UnitSpec>& all, std::uint32_t unit) {
    std::vector<ParameterId> ids;
    const auto own = static_cast<std::uint32_t>(all[unit].parameters.size());
    for (std::uint32_t index = 0; index < own + all[unit].borrowed.size(); ++index)
        if (index >= own || all[unit].parameters[index].training == zero::Training::trainable)
            ids.push_back({unit, index});
    return ids;
}

// The same model in plain memory, in fp32.
class PlainLoop {
   public:
    explicit PlainLoop(std::vector<zero::UnitSpec> all) : units_(std::move(all)), optimizer_(zero::make_adamw({})) {
        for (std::uint32_t unit = 0; unit < units_.size(); ++unit)
            for (std::uint32_t index = 0; index < units_[unit].parameters.size(); ++index) {
                Parameter& parameter = parameters_[{unit, index}];
                const std::uint64_t numel = numel_of(units_, {unit, index});
                for (std::uint64_t i = 0; i < numel; ++i) parameter.value.push_back(first_value(unit, index, i));
                parameter.m.resize(numel);
                parameter.v.resize(numel);
            }
    }

    // As a client: adds the gradients of this unit's parameters, at `time`.
    void backward(std::uint32_t unit, std::uint64_t time) {
        for (const ParameterId id : parameters_of(units_, unit)) {
            const Values& value = parameters_.at(owner(id)).value;
            const Values gradient = gradient_of(value.data(), value.size(), time);
            Values& sum = sums_[{id.unit, id.index}];
            if (sum.empty())
                sum = gradient;
            else
                for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
        }
    }
    void add(ParameterId id, const Values& gradient) {
        Values& sum = sums_[{id.unit, id.index}];
        sum.resize(gradient.size());
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    // Borrowed sums to their owners'.
    void end_pass() {
        for (auto sum = sums_.begin(); sum != sums_.end();) {
            const auto to = owner({sum->first.first, sum->first.second});
            if (to == sum->first) {
                ++sum;
                continue;
            }
            Values& own = sums_[to];
            if (own.empty()) own.resize(sum->second.size());
            for (std::size_t i = 0; i < own.size(); ++i) own[i] += sum->second[i];
            sum = sums_.erase(sum);
        }
    }
    // `step` is that of parameters that have never been skipped; `rates` of their groups: "last.norm", and all others.
    void update(std::uint64_t step, double scale, std::pair<double, double> rates = {1e-2, 1e-2}) {
        for (auto& [id, parameter] : parameters_) {
            const zero::ParameterSpec& spec = units_[id.first].parameters[id.second];
            if (spec.training == zero::Training::frozen) continue;
            Values& gradient = sums_[id];
            if (gradient.empty() && spec.unused == zero::Unused::skipped) {
                ++parameter.skipped;
                continue;
            }
            gradient.resize(parameter.value.size());
            for (float& each : gradient) each *= static_cast<float>(scale);
            optimizer_->update(
                {.master = parameter.value.data(),
                 .moments = {parameter.m.data(), parameter.v.data()},
                 .gradient = gradient.data(),
                 .count = gradient.size()},
                {.step = step - parameter.skipped, .learning_rate = spec.name == "norm" ? rates.first : rates.second});
        }
        sums_.clear();
    }

    struct Parameter {
        Values value, m, v;
        std::uint64_t skipped = 0;
        bool operator==(const Parameter& other) const { return value == other.value && m == other.m && v == other.v; }
    };
    using Id = std::pair<std::uint32_t, std::uint32_t>;
    const std::map<Id, Parameter>& parameters() const { return parameters_; }
    std::map<Id, Parameter>& parameters() { return parameters_; }
    const std::vector<zero::UnitSpec>& units() const { return units_; }
    std::map<Id, Values>& sums() { return sums_; }  // of the step under way

   private:
    Id owner(ParameterId id) const {
        const zero::UnitSpec& unit = units_[id.unit];
        if (id.index < unit.parameters.size()) return {id.unit, id.index};
        const zero::BorrowedSpec& borrowed = unit.borrowed[id.index - unit.parameters.size()];
        return {borrowed.owner, borrowed.parameter};
    }

    std::vector<zero::UnitSpec> units_;
    std::unique_ptr<zero::Optimizer> optimizer_;
    std::map<Id, Parameter> parameters_;
    std::map<Id, Values> sums_;
};

// What compute finds in the memory that it reads, when it is its turn.
inline std::vector<std::byte> seen_by_compute(const zero::ParameterMemory& memory) {
    std::vector<std::byte> seen(memory.numel * zero::bytes_of(memory.type));
    issue([&] { std::copy_n(memory.data, seen.size(), seen.data()); });
    finish_compute();
    return seen;
}

inline bool holds(const zero::ParameterMemory& memory, const Values& wanted) {
    const std::vector<std::byte> seen = seen_by_compute(memory);
    return seen.size() == 4 * wanted.size() && std::memcmp(seen.data(), wanted.data(), seen.size()) == 0;
}

struct Setting {
    zero::DeviceKind device = devices().front();
    zero::Residency residency;
    std::uint32_t depth = 2;
    zero::Durability durability;
    zero::Unused unused = zero::Unused::refused;
    bool norm_group = false;  // "last.norm" is a group of its own
    bool sgd = false;
    bool snapshots = false;
    std::string resume_from = {};
    std::vector<std::uint32_t> resident_units = {};
    std::optional<zero::PlaneType> frozen_type = {};  // of all units
    std::uint64_t device_budget = 4 << 20;            // everything fits
    unsigned seed = 1;                                // of the order of what compute does
    zero::UpdateWay order = zero::UpdateWay::after_backward;
    std::uint64_t fill_bytes = 0;  // of host memory beyond what is needed, which units are kept in
    zero::GradientMemory gradient_memory = zero::GradientMemory::all_units;
    std::chrono::seconds io_deadline = aio::default_deadline;
    std::optional<double> deferred_share = {};
    unsigned hash_threads = 0;       // for tiles of any length
    bool all_may_be_unused = false;  // Unused::skipped
    zero::SumOrder sum_order = zero::SumOrder::passes_first;
    std::uint64_t host_budget = 32 << 20;
    std::shared_ptr<Gate> gate = {};  // which each update passes; null: none
};

// Each of them with its updates after backward, and deferred.
inline std::vector<Setting> in_each_order(std::vector<Setting> settings) {
    for (std::size_t index = 0, count = settings.size(); index < count; ++index) {
        settings.push_back(settings[index]);
        settings.back().order = zero::UpdateWay::deferred;
    }
    return settings;
}

// For the names of tests.
inline void PrintTo(const Setting& setting, std::ostream* out) {
    *out << word_of(setting.device) << " of " << setting.device_budget << " bytes, " << setting.resident_units.size()
         << " resident units, " << setting.fill_bytes << " to fill, seed " << setting.seed << ", "
         << word_of(setting.order);
}

// Room in host memory for the weights of some units; and of all, and for the states of some, of one not all tiles.
inline constexpr std::uint64_t some_weights = 60 << 10;
inline constexpr std::uint64_t some_states = 180 << 10;

// A device budget in which weights and gradients have to make room for each other.
inline constexpr std::uint64_t tight_device_budget = 180 << 10;

// Those that only a device of its own memory has, of each such device.
inline std::vector<Setting> device_settings() {
    std::vector<Setting> all;
    for (const zero::DeviceKind device : devices()) {
        if (device == zero::DeviceKind::cpu) continue;
        for (const unsigned seed : {1U, 2U, 3U}) {
            all.push_back({.device = device, .seed = seed});
            all.push_back({.device = device, .residency = {zero::Tier::host, zero::Tier::nvme}, .seed = seed});
            all.push_back({.device = device, .resident_units = {1, 4}, .seed = seed});
            if (seed == 1) all.push_back({.device = device, .fill_bytes = some_weights});
            all.push_back({.device = device, .device_budget = tight_device_budget, .seed = seed});
            all.push_back(
                {.device = device, .resident_units = {2}, .device_budget = tight_device_budget, .seed = seed});
            if (device == zero::DeviceKind::emulated) break;
        }
    }
    return in_each_order(all);
}

// A test's compute begins before its client and ends behind it.
class ComputeTest : public ::testing::Test {
   protected:
    explicit ComputeTest(unsigned seed = 1) { begin_compute(seed); }
    ~ComputeTest() override { end_compute(); }
};

inline store::ClientState no_state(double) {
    return {};
}

inline zero::ParameterGroups optimizers(const Setting& setting) {
    if (setting.gate) return std::unique_ptr<zero::Optimizer>(std::make_unique<GatedAdamW>(setting.gate));
    if (setting.sgd) return zero::make_sgd({});
    if (!setting.norm_group) return zero::make_adamw({});
    return {zero::make_adamw({}), {{.pattern = "norms", .optimizer = zero::make_adamw({}), .names = {"last.norm"}}}};
}

inline zero::CoreOptions core_options(const std::string& directory, const Setting& setting) {
    zero::CoreOptions options;
    options.swap_directories = {directory};
    options.job = "client";
    options.host_budget_bytes = setting.host_budget;
    options.prefetch_depth = setting.depth;
    options.tile_numel = 4096;
    options.residency = setting.residency;
    options.durability = setting.durability;
    options.snapshots = setting.snapshots;
    options.resume_from = setting.resume_from;
    options.gradient_memory = setting.gradient_memory;
    options.io_deadline = setting.io_deadline;
    options.ranks.sum_order = setting.sum_order;
    options.device = {.kind = setting.device,
                      .budget_bytes = setting.device_budget,
                      .copy_delay = std::chrono::microseconds(50),
                      .index = setting.device == zero::DeviceKind::cuda ? 1 : 0};
    options.codec = "plain_fp32";
    options.gradient_type = zero::PlaneType::fp32;
    options.worker_threads = 2;
    options.hashing = {.threads = setting.hash_threads, .least_bytes = 1};
    options.fill_host_budget = setting.fill_bytes > 0;
    zero::update_by(setting.order, options, setting.deferred_share);
    return options;
}

// A session over those units, and a client of it.
class Client {
   public:
    Client(const std::string& directory, const Setting& setting, zero::SessionSeams seams = {})
        : directory_(directory),
          units_(units(setting.unused)),
          source_([](const auto& parameter, std::uint64_t first, std::span<float> out) {
              const std::vector<zero::UnitSpec> all = units();
              std::uint32_t unit = 0;
              while (all[unit].name != parameter.unit.name) ++unit;
              std::uint32_t index = 0;
              while (all[unit].parameters[index].name != parameter.spec.name) ++index;
              for (std::uint64_t i = 0; i < out.size(); ++i) out[i] = first_value(unit, index, first + i);
          }) {
        for (const std::uint32_t unit : setting.resident_units) units_[unit].resident = true;
        for (zero::UnitSpec& unit : units_) unit.frozen_type = setting.frozen_type;
        if (setting.all_may_be_unused) units_ = all_skippable(std::move(units_));
        zero::CoreOptions options = core_options(directory, setting);
        if (setting.fill_bytes > 0) fill(options, setting);
        seams.weights = &source_;
        session_ = std::make_unique<zero::CoreSession>(
            zero::ModelSpec{.units = units_, .optimizers = optimizers(setting)}, options, ample_room(),
            store::ClientState{{"step", "0"}}, zero::SessionEvents{}, seams);
    }

    zero::CoreSession& session() { return *session_; }
    const std::string& directory() const noexcept { return directory_; }
    std::uint64_t steps() const { return std::stoull(session_->info().client.at("step")); }

    void forward(std::uint32_t unit) { session_->visit({{unit}}); }
    void backward(std::uint32_t unit, std::uint64_t time) {
        session_->visit({{unit}});
        for (const ParameterId id : parameters_of(units_, unit)) add(id, time);
    }
    zero::UpdateReport update(std::uint64_t step, double clip = 0) {
        return session_->update({.values = {.step = step, .learning_rate = 1e-2}, .clip = clip}, [&](double) {
            return store::ClientState{{"step", std::to_string(step)}};
        });
    }

    // Everything that the session holds, as the plain loop holds it.
    std::map<PlainLoop::Id, PlainLoop::Parameter> state() {
        struct Sink final : zero::WeightSink {
            void write(const zero::NamedParameter& parameter, const zero::ValueStretch& stretch) override {
                PlainLoop::Parameter& to = all[parameter.name()];
                Values& values = stretch.value == zero::ParameterValue::moment0   ? to.m
                                 : stretch.value == zero::ParameterValue::moment1 ? to.v
                                                                                  : to.value;
                const auto* data = reinterpret_cast<const float*>(stretch.data);
                values.resize(parameter.spec.numel());
                std::copy_n(data, stretch.numel, values.begin() + static_cast<std::ptrdiff_t>(stretch.first));
            }
            std::map<std::string, PlainLoop::Parameter> all;
        } sink;
        using zero::ParameterValue;
        std::vector<ParameterValue> values = {ParameterValue::weight, ParameterValue::moment0, ParameterValue::moment1};
        values.resize(1 + session_->layout().format().moments);
        session_->read_out({.values = values}, sink);
        std::map<PlainLoop::Id, PlainLoop::Parameter> found;
        for (std::uint32_t unit = 0; unit < units_.size(); ++unit)
            for (std::uint32_t index = 0; index < units_[unit].parameters.size(); ++index) {
                PlainLoop::Parameter& parameter = found[{unit, index}];
                parameter = sink.all.at(units_[unit].name + "." + units_[unit].parameters[index].name);
                parameter.m.resize(parameter.value.size());  // a frozen one has none
                parameter.v.resize(parameter.value.size());
            }
        return found;
    }

   private:
    void fill(zero::CoreOptions& options, const Setting& setting) const {
        options.host_budget_bytes = zero::planned_host_budget;
        options.fill_host_budget = false;
        const zero::SessionPlan least({.units = units_, .optimizers = optimizers(setting)}, options, ample_room(), {});
        options.host_budget_bytes = least.memory.budget.used_bytes() + setting.fill_bytes;
        options.fill_host_budget = true;
    }
    void add(ParameterId id, std::uint64_t time) {
        const zero::ParameterMemory weights = session_->weights(id);
        ASSERT_EQ(weights.numel, numel_of(units_, id));
        const auto* values = reinterpret_cast<const float*>(weights.data);
        if (session_->device().shares_host_memory()) {
            const Values gradient = gradient_of(values, weights.numel, time);
            session_->add_gradient(
                id, {reinterpret_cast<const std::byte*>(gradient.data()), zero::PlaneType::fp32, gradient.size()});
            return;
        }
        const zero::GradientSums::Open sum = session_->open_gradient(id);
        auto* data = reinterpret_cast<float*>(sum.data);
        issue([=] {
            const Values gradient = gradient_of(values, sum.numel, time);
            for (std::size_t i = 0; i < gradient.size(); ++i) data[i] = (sum.fresh ? 0 : data[i]) + gradient[i];
        });
    }

    std::string directory_;
    std::vector<zero::UnitSpec> units_;
    zero::WeightFunction source_;
    std::unique_ptr<zero::CoreSession> session_;
};

// Of all units, without a forward; the plain loop goes with it.
inline void backward_pass(Client& client, PlainLoop& plain, std::uint64_t time) {
    client.session().begin_pass(Pass::training);
    for (std::uint32_t unit = 5; unit-- > 0;) {
        client.backward(unit, time);
        plain.backward(unit, time);
    }
    client.session().end_pass();
    plain.end_pass();
}

}  // namespace penstock::testing
