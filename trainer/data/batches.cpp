#include "trainer/data/batches.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace penstock::trainer {
namespace {

WindowOrder make_order(const TokenFile& file, const BatchShape& shape, std::uint64_t seed) {
    const auto context = static_cast<std::uint64_t>(shape.context);
    if (file.info().count <= context) {
        throw Error(ExitCode::usage, fmt::format("{} has {} tokens; model.context {} needs at least {}", file.path(),
                                                 file.info().count, context, context + 1));
    }
    return {file.info().count, context, seed};
}

}  // namespace

Batches::Batches(const TokenFile& file, BatchShape shape, std::uint64_t seed, at::Device device)
    : file_(file), shape_(shape), order_(make_order(file, shape, seed)), device_(device) {}

engine::Bundle Batches::micro_batch(std::uint64_t first_row) {
    const std::int64_t columns = shape_.context + 1;
    at::Tensor rows = at::empty({shape_.rows, columns}, at::kLong);
    auto* data = rows.data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < shape_.rows; ++row) {
        file_.read(order_.first_token(first_row + static_cast<std::uint64_t>(row)),
                   {data + row * columns, static_cast<std::size_t>(columns)});
    }
    rows = rows.to(device_);
    return {{"tokens", rows.narrow(1, 0, shape_.context).contiguous()},
            {"targets", rows.narrow(1, 1, shape_.context).contiguous()}};
}

const std::vector<engine::Bundle>& Batches::after(std::int64_t seen_rows) {
    PENSTOCK_CHECK(seen_rows >= 0, "{} rows", seen_rows);
    bundles_.clear();
    for (std::int64_t turn = 0; turn < shape_.micro_batches; ++turn) {
        const std::int64_t index = turn * shape_.of.ranks + shape_.of.rank;
        bundles_.push_back(micro_batch(static_cast<std::uint64_t>(seen_rows + index * shape_.rows)));
    }
    return bundles_;
}

}  // namespace penstock::trainer
