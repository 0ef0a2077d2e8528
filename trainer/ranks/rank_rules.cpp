#include "trainer/ranks/rank_rules.h"

#include "aio/words/error.h"
#include "aio/words/host_name.h"
#include "pinned_pool/budget.h"
#include "trainer/config/key_table.h"
#include "zero_infinity/plan/ranks/node_room.h"
#include "zero_infinity/ranks/agreement.h"
#include "zero_infinity/threads/usable_cores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace penstock::trainer {
namespace {

std::string absolute(const std::string& path) {
    std::error_code unknown;
    const auto found = std::filesystem::absolute(path, unknown).lexically_normal();
    return unknown ? path : found.string();
}

// Where a rank computes; as it goes through a gather.
struct Seat {
    std::array<char, 40> boot{};    // of the machine's kernel
    std::array<char, 128> cores{};  // that it may run on: of its first 1024
    unsigned count = 1;
};

Seat own_seat() {
    Seat seat{.boot = zero::RankRoom::read(0, pool::MachineMemory::read()).boot,
              .cores = {},
              .count = zero::UsableCores::read().count};
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) == 0)
        std::memcpy(seat.cores.data(), &set, std::min(sizeof set, seat.cores.size()));
    return seat;
}

}  // namespace

std::vector<std::string> fit_to_ranks(TrainConfig& config, const std::vector<std::string>& flags) {
    if (config.ranks == 1) return {};
    std::vector<std::string> later = flags;
    if (config.session.gradients == zero::GradientTier::nvme) later.emplace_back("memory.gradients \"nvme\"");
    if (!later.empty())
        throw Error(ExitCode::usage, fmt::format("{} with {} processes: comes later; leave out what is named",
                                                 fmt::join(later, ", "), config.ranks));
    engine::SessionOptions& session = config.session;
    std::vector<std::string> lines;
    if (session.residency.weights != zero::Tier::host)
        lines.push_back(fmt::format(
            "with {} processes each keeps all weights in host memory, and 1/{} of the states in a store of its own",
            config.ranks, config.ranks));
    if (config.settings.given("run.update_order") && session.update_order != zero::UpdateOrder::after_backward)
        lines.push_back(fmt::format("run.update_order is \"{}\" with {} processes: the bits are the same",
                                    word_of(zero::UpdateOrder::after_backward), config.ranks));
    session.residency.weights = zero::Tier::host;
    session.update_order = zero::UpdateOrder::after_backward;
    session.deferred_share = 0;
    session.gradients = zero::GradientTier::host;
    session.remedies = store::library_remedies();  // the program's own name a store of one process
    return lines;
}

void agree_on_run(zero::Communicator& ranks, const TrainConfig& config, const std::string& data_hash) {
    if (ranks.ranks() == 1) return;
    zero::AgreedValues own{.host = aio::host_name(), .values = {{"the contents of data.train", data_hash}}};
    for (const KeySpec& key : keys()) own.values.push_back({std::string(key.path), config.settings.spelled(key.path)});
    for (const SettingDirectory& each : config.swap_directories)
        own.values.push_back({fmt::format("the place of {}", each.path), absolute(each.path)});
    zero::agree(ranks, own);
}

unsigned cores_of_rank(zero::Communicator& ranks) {
    if (ranks.ranks() == 1) return zero::UsableCores::read().count;
    const Seat own = own_seat();
    const auto all = zero::gathered(ranks, "who computes where", own);
    const auto sharing =
        std::ranges::count_if(all, [&](const Seat& each) { return each.boot == own.boot && each.cores == own.cores; });
    return std::max(1U, own.count / static_cast<unsigned>(sharing));
}

std::uint32_t ranks_of_machine(zero::Communicator& ranks) {
    if (ranks.ranks() == 1) return 1;
    const Seat own = own_seat();
    const auto all = zero::gathered(ranks, "who computes on one machine", own);
    return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(std::ranges::count_if(all, [&](const Seat& each) {
                                       return each.boot == own.boot && own.boot.front() != 0;
                                   })));
}

}  // namespace penstock::trainer
