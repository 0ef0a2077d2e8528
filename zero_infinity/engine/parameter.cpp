#include "zero_infinity/engine/parameter.h"

#include "aio/words/check.h"

#include <ATen/ATen.h>

namespace penstock::engine {

const at::Tensor& Parameter::tensor() const {
    PENSTOCK_CHECK(state_ == State::bound, "parameter '{}' is read while its weights are not in memory", spec_.name);
    return tensor_;
}

void Parameter::materialise(at::ScalarType type, at::Device device) {
    PENSTOCK_CHECK(state_ == State::meta, "parameter '{}' has a tensor already", spec_.name);
    auto storage =
        c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, at::DataPtr(nullptr, device),
                                              /*allocator=*/nullptr, /*resizable=*/false);
    const c10::DispatchKeySet keys(c10::computeDispatchKey(type, c10::nullopt, device));
    tensor_ = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), keys,
                                                       c10::scalarTypeToTypeMeta(type));
    tensor_.unsafeGetTensorImpl()->set_sizes_contiguous(spec_.shape);
    tensor_.requires_grad_(spec_.training == zero::Training::trainable);
    state_ = State::released;
}

void Parameter::bind(std::byte* data) {
    PENSTOCK_CHECK(state_ == State::released, "parameter '{}' is bound twice or has no tensor", spec_.name);
    auto* storage = tensor_.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(at::DataPtr(data, tensor_.device()));
    storage->set_nbytes(spec_.numel() * tensor_.element_size());
    state_ = State::bound;
}

void Parameter::release() noexcept {
    if (state_ != State::bound) return;
    auto* storage = tensor_.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(at::DataPtr(nullptr, tensor_.device()));
    storage->set_nbytes(0);
    state_ = State::released;
}

}  // namespace penstock::engine
