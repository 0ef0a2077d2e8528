#include "zero_infinity/engine/gradient_paths.h"

#include <ATen/ATen.h>

#include <utility>

namespace penstock::engine {
namespace {

// The inputs that paths through a unit depend on: "hidden* mask targets".
std::string form_of(const Bundle& input) {
    std::string form;
    for (const auto& [name, tensor] : input) form += name + (tensor.requires_grad() ? "* " : " ");
    return form;
}

}  // namespace

std::set<std::string> requiring_gradient(const Bundle& bundle) {
    std::set<std::string> names;
    for (const auto& [name, tensor] : bundle)
        if (tensor.defined() && tensor.requires_grad()) names.insert(name);
    return names;
}

Bundle cut(const Bundle& bundle, const std::set<std::string>& wanted) {
    Bundle leaves;
    for (const auto& [name, tensor] : bundle) {
        at::Tensor leaf = tensor.detach();
        if (wanted.contains(name)) leaf.requires_grad_(true);
        leaves.set(name, std::move(leaf));
    }
    return leaves;
}

bool GradientPaths::knows(std::uint32_t unit, const Bundle& input) const {
    return units_[unit].contains(form_of(input));
}

void GradientPaths::learn(std::uint32_t unit, const Bundle& input, const Bundle& output) {
    units_[unit][form_of(input)] = requiring_gradient(output);
}

const std::set<std::string>& GradientPaths::of(std::uint32_t unit, const Bundle& input) const {
    return units_[unit].at(form_of(input));
}

}  // namespace penstock::engine
