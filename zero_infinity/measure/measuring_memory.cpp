#include "zero_infinity/measure/measuring_memory.h"

#include <cstring>
#include <random>

namespace penstock::zero {
namespace {

constexpr const char* use_name = "measuring";

pool::Budget budget_of(const std::vector<std::size_t>& lease_bytes, const std::string& setting) {
    std::uint64_t bytes = 0;
    for (const std::size_t one : lease_bytes) bytes += pool::whole_granules(one);
    pool::Budget budget(bytes + pool::huge_page_bytes, setting);  // room for the last huge page to be whole
    budget.add({use_name, bytes, setting});
    return budget;
}

}  // namespace

MeasuringMemory::MeasuringMemory(const std::vector<std::size_t>& lease_bytes, const std::string& setting)
    : pool_(budget_of(lease_bytes, setting), pool::MachineMemory::read(), pool::PoolOptions{}) {
    for (const std::size_t bytes : lease_bytes) leases_.push_back(pool_.acquire(pool_.use(use_name), bytes));
}

void fill_random(std::span<std::byte> memory, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= memory.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        std::memcpy(memory.data() + at, &word, sizeof(word));
    }
}

}  // namespace penstock::zero
