#include "zero_infinity/capi/c_look.h"

#include "swap/capi/c_error.h"
#include "swap/directory/remedy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace penstock::zero {

std::optional<store::Manifest> committed_at(const std::string& path, penstock_look& look) {
    auto found = store::look_at_store(path);
    if (!found) return std::nullopt;
    look.in_use = found->in_use ? 1 : 0;
    if (found->recovery.never_committed()) return std::nullopt;
    if (!found->recovery.newest)
        throw store::Refusal(PENSTOCK_STORAGE,
                             fmt::format("{}: no generation of the store is whole. {}. {}.", path,
                                         fmt::join(found->problems(), "; "), store::library_remedies()->of_loss(path)));
    look.content = found->recovery.newest->origin ? PENSTOCK_CONTENT_SNAPSHOT : PENSTOCK_CONTENT_STORE;
    look.generation = found->recovery.newest->generation;
    return std::move(found->recovery.newest);
}

}  // namespace penstock::zero
