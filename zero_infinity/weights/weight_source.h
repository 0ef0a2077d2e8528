// Where a model's first weights come from: drawn (engine/drawn_weights.h), read from a file by name, or handed over by
// the caller.
#pragma once

#include "zero_infinity/layout/unit.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace penstock::zero {

// A parameter as sources and sinks meet it. Refers to the layout's specs: valid during the call.
struct NamedParameter {
    const UnitSpec& unit;
    const ParameterSpec& spec;
    std::string name() const { return unit.name + "." + spec.name; }  // "blocks.3.norm.weight", as ParameterGroup's
};

// Gives values in fp32, a stretch at a time, so that a model gets into a store without ever being whole in memory.
// Called on one thread, the one that opens the store, and may block there. What it throws ends the opening and reaches
// the caller; nothing of the new store is committed then.
class WeightSource {
   public:
    virtual ~WeightSource() = default;

    // Called once, before the store is created. Throws Error (usage) naming what the source lacks, has too much, or has
    // in another shape.
    virtual void check(std::span<const UnitLayout> /*units*/) {}

    // What is done while the store is filled, for whoever shows progress.
    virtual const char* doing() const noexcept { return "reading the initial weights"; }

    // Elements [first, first + values.size()) of the parameter, in the order in which its last index runs fastest.
    // Unit by unit; of each parameter from lower elements to higher ones, each once, before the next parameter's. With
    // several ranks each asks for what lies in its own shard. The layout's trainable parameters come before its frozen
    // ones.
    virtual void read(const NamedParameter& parameter, std::uint64_t first, std::span<float> values) = 0;
};

// A source that is a function.
class WeightFunction final : public WeightSource {
   public:
    using Function = std::function<void(const NamedParameter& parameter, std::uint64_t first, std::span<float> values)>;
    explicit WeightFunction(Function function) : function_(std::move(function)) {}
    void read(const NamedParameter& parameter, std::uint64_t first, std::span<float> values) override {
        function_(parameter, first, values);
    }

   private:
    Function function_;
};

}  // namespace penstock::zero
