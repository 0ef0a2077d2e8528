#include "zero_infinity/memory/bringing.h"

#include "aio/words/check.h"

namespace penstock::zero {
namespace {

class BringInPlace final : public Bringing {
   public:
    bool apart() const noexcept override { return false; }
    Ticket bring(std::uint32_t unit, std::byte*, const std::byte*, Ticket) override {
        PENSTOCK_CHECK(false, "unit {} is brought to where its tiles arrive", unit);
    }
    Ticket bring_back(std::uint32_t unit, std::byte*, const std::byte*, std::uint64_t) override {
        PENSTOCK_CHECK(false, "unit {} is brought back to where its tiles arrive", unit);
    }
};

class BringCopy final : public Bringing {
   public:
    BringCopy(const ModelLayout& layout, Device& device) : layout_(layout), device_(device) {}
    bool apart() const noexcept override { return true; }
    Ticket bring(std::uint32_t unit, std::byte* place, const std::byte* shard, Ticket after) override {
        return device_.copy_in(place, shard, layout_.shard(unit).bytes, after);
    }
    Ticket bring_back(std::uint32_t, std::byte* shard, const std::byte* place, std::uint64_t bytes) override {
        return device_.copy_out(shard, place, bytes);
    }

   private:
    const ModelLayout& layout_;
    Device& device_;
};

class BringNothing final : public Bringing {
   public:
    bool apart() const noexcept override { return true; }
    Ticket bring(std::uint32_t unit, std::byte*, const std::byte*, Ticket) override {
        PENSTOCK_CHECK(false, "unit {} is gathered for good, and brought for a visit", unit);
    }
    Ticket bring_back(std::uint32_t unit, std::byte*, const std::byte*, std::uint64_t) override {
        PENSTOCK_CHECK(false, "unit {} is gathered for good, and brought back", unit);
    }
};

}  // namespace

std::unique_ptr<Bringing> make_bringing(const ModelLayout& layout, Device& device) {
    if (layout.partition().ranks > 1) {
        for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
            PENSTOCK_CHECK(layout.stays(unit), "unit {} is not gathered for good", unit);
        return std::make_unique<BringNothing>();
    }
    if (device.shares_host_memory()) return std::make_unique<BringInPlace>();
    return std::make_unique<BringCopy>(layout, device);
}

}  // namespace penstock::zero
