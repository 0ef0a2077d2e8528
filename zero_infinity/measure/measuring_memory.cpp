#include "zero_infinity/measure/measuring_memory.h"

namespace penstock::zero {
namespace {

constexpr const char* use_name = "measuring";

pool::Budget budget_of(std::uint64_t bytes) {
    pool::Budget budget(pool::whole_granules(bytes), "");
    budget.add({use_name, bytes, ""});
    return budget;
}

}  // namespace

MeasuringMemory::MeasuringMemory(std::uint64_t bytes)
    : pool_(budget_of(bytes), pool::MachineMemory::read(), pool::PoolOptions{}),
      lease_(pool_.acquire(pool_.use(use_name), bytes)) {}

}  // namespace penstock::zero
