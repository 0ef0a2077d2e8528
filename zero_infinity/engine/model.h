// What the author of a model writes: an ordered list of units.
//
//   class Block : public Unit {
//      public:
//       Block(std::string name, std::int64_t width)
//           : Unit(std::move(name)), weight_(declare("weight", {width, width}, Initial::normal(0.02))) {}
//       Bundle forward(const Bundle& input) const override {
//           return {{"hidden", at::linear(input.at("hidden"), weight_.tensor())}, {"targets", input.at("targets")}};
//       }
//      private:
//       const Parameter& weight_;
//   };
#pragma once

#include "zero_infinity/engine/bundle.h"
#include "zero_infinity/engine/parameter.h"

#include <memory>
#include <string>
#include <vector>

namespace penstock::engine {

// A parameter of another unit that this one reads too (a tied head reads the embedding's weight).
struct Borrowed {
    const class Unit* owner = nullptr;
    Parameter* parameter = nullptr;
};

// A piece of the model that is gathered, computed and released as a whole. Used on the compute thread only.
//
// forward() reads its parameters through Parameter::tensor(), keeps no tensors, returns none that is a view of a
// parameter (its memory goes away: checked), and changes neither its input nor its parameters in place (they are the
// caller's, and what backward computes again from: checked for torch's operations). It is pure: called twice with the
// same input it gives the same bits. It may draw from torch's default generators, of the CPU and of the device that
// computes, which are set back when it is run again; any other generator must be a function of its input.
//
// Gradients go the way of autograd: through those tensors of a bundle that came out of a unit with requires_grad, that
// is, that depend on a trainable parameter. What the caller gives, labels, masks, biases, is not differentiated, and
// neither is what depends on frozen parameters alone. Whether an output requires a gradient may depend on which inputs
// are there and require one, and on nothing else (checked).
// Each trainable parameter must have a part in the loss, unless it was declared with Unused::allowed, and a unit whose
// input requires a gradient must pass one on: otherwise what comes before it would silently not be trained. Both are
// looked at over the step's micro-batches; an Error names the unit and the parameters.
class Unit {
   public:
    explicit Unit(std::string name) : name_(std::move(name)) {}
    virtual ~Unit() = default;
    Unit(const Unit&) = delete;
    Unit& operator=(const Unit&) = delete;

    virtual Bundle forward(const Bundle& input) const = 0;
    // forward(), and the checks of what it promises. Throws Error (internal) naming the unit; c10::Error where torch
    // finds no memory.
    Bundle run(const Bundle& input) const;

    const std::string& name() const noexcept { return name_; }
    zero::UnitSpec spec() const;  // without what is borrowed, whose place only the model knows
    const std::vector<std::unique_ptr<Parameter>>& parameters() const noexcept { return parameters_; }
    const std::vector<Borrowed>& borrowed() const noexcept { return borrowed_; }

   protected:
    const Parameter& declare(std::string name, std::vector<std::int64_t> shape, Initial initial,
                             zero::Training training = zero::Training::trainable, Unused unused = Unused::refused);
    // REQUIRES: `owner` comes before this unit in the model and outlives it; a parameter is borrowed once.
    const Parameter& borrow(const Unit& owner, const Parameter& parameter);

   private:
    std::string name_;
    std::vector<std::unique_ptr<Parameter>> parameters_;
    std::vector<Borrowed> borrowed_;
};

// Built on `meta`: shapes without memory. In training the last unit's output holds "loss", a scalar mean.
class Model {
   public:
    // Throws Error (usage) when two units have the same name or a unit borrows from one that does not come before it.
    explicit Model(std::vector<std::unique_ptr<Unit>> units);

    const std::vector<std::unique_ptr<Unit>>& units() const noexcept { return units_; }
    std::vector<zero::UnitSpec> specs() const;
    std::uint32_t index_of(const Unit& unit) const;
    std::uint64_t parameter_numel() const;  // each tied parameter once
    std::uint64_t trainable_numel() const;

   private:
    bool comes_before(const Unit* unit, std::uint32_t index) const;

    std::vector<std::unique_ptr<Unit>> units_;
};

}  // namespace penstock::engine
