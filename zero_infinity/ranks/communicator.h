// What the ranks of one run say to each other in a few bytes: each hears all.
#pragma once

#include "zero_infinity/layout/unit.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace penstock::zero {

// Every rank calls it in the same order with the same sizes. All calls on the compute thread, and none while another is
// under way. A rank that is lost or does not come ends each of them with an Error on the ranks that are left.
class Communicator {
   public:
    virtual ~Communicator() = default;
    virtual std::uint32_t rank() const noexcept = 0;  // < ranks()
    virtual std::uint32_t ranks() const noexcept = 0;
    Partition partition() const noexcept { return {rank(), ranks()}; }

    // `all` becomes what each rank gave, one after the other in their order; returns after all have called it. `what`
    // is for messages ("the norm"). `mine` may lie in its place in `all`. REQUIRES: all.size() == ranks() ×
    // mine.size().
    virtual void all_gather(std::string_view what, std::span<const std::byte> mine, std::span<std::byte> all) = 0;
};

// One rank alone: nobody to wait for.
class LocalCommunicator final : public Communicator {
   public:
    std::uint32_t rank() const noexcept override { return 0; }
    std::uint32_t ranks() const noexcept override { return 1; }
    void all_gather(std::string_view what, std::span<const std::byte> mine, std::span<std::byte> all) override;
};

// Each rank's number, in the order of the ranks, exactly. REQUIRES: of_all.size() == ranks().
void gather(Communicator& communicator, std::string_view what, std::uint64_t own, std::span<std::uint64_t> of_all);
// What each rank has of any type that is its bytes, in the order of the ranks.
template <typename T>
std::vector<T> gathered(Communicator& communicator, std::string_view what, const T& own) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(communicator.ranks());
    communicator.all_gather(what, std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    return all;
}
// The largest of the numbers.
std::uint64_t agree_on_largest(Communicator& communicator, std::string_view what, std::uint64_t own);

}  // namespace penstock::zero
