// What crosses the boundary between two units: a small set of named tensors (hidden state, mask, targets, …).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::engine {

// A value; keeps the order of insertion. Which of its tensors are differentiated: see Unit.
class Bundle {
   public:
    Bundle() = default;
    Bundle(std::initializer_list<std::pair<std::string, at::Tensor>> entries) : entries_(entries) {}

    void set(std::string_view name, at::Tensor tensor);
    const at::Tensor& at(
        std::string_view name) const;  // throws Error (internal) naming what is there when it is missing
    bool has(std::string_view name) const noexcept;

    std::size_t size() const noexcept { return entries_.size(); }
    auto begin() const noexcept { return entries_.begin(); }
    auto end() const noexcept { return entries_.end(); }

   private:
    std::vector<std::pair<std::string, at::Tensor>> entries_;
};

}  // namespace penstock::engine
