#include "zero_infinity/plan/ranks/ranks_plan.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/plan/ranks/node_room.h"
#include "zero_infinity/plan/ranks/zero_stages.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>

namespace penstock::zero {
namespace {

namespace fs = std::filesystem;

struct Row {
    std::string name;
    std::uint64_t bytes = 0;  // of a rank
};

std::vector<Row> rows_of(const SessionPlan& plan, std::uint64_t passes) {
    std::vector<Row> rows;
    const auto add = [&](std::string name, std::uint64_t bytes) {
        if (bytes > 0) rows.push_back({std::move(name), bytes});
    };
    add("device", plan.memory.device_bytes);
    add("host", plan.memory.budget.used_bytes());
    for (const pool::Use& use : plan.memory.budget.uses()) add("  " + use.name, use.bytes);
    add("NVMe, stores", plan.store_bytes());
    add("  a step reads", plan.step_bytes.read + (passes - 1) * plan.step_bytes.further_read);
    add("  a step writes", plan.step_bytes.write + (passes - 1) * plan.step_bytes.further_write);
    if (plan.options.durability.commit_steps > 0) add("  and where it commits", plan.step_bytes.resident_write);
    const WireBytes wire = wire_bytes(plan, passes);
    add("wire, a step", wire.gathered + wire.exchanged);
    add("  gathered weights", wire.gathered);
    add("  exchanged gradients", wire.exchanged);
    add("wire, at the start", wire.gathered_first);
    return rows;
}

std::string head_of(const RankCount& count) {
    const std::uint32_t sharing = count.sharing();
    const std::string all = fmt::format("all {}", count.ranks);
    std::string head = fmt::format("  {:<22} {:>12}", "", "a rank");
    if (sharing < count.ranks) head += fmt::format(" {:>16}", fmt::format("{} of a node", sharing));
    return head + fmt::format(" {:>16}\n", all);
}

std::string text_of(const Row& row, const RankCount& count) {
    std::string text = fmt::format("  {:<22} {:>12}", row.name, memory_text(row.bytes));
    if (count.sharing() < count.ranks) text += fmt::format(" {:>16}", memory_text(row.bytes * count.sharing()));
    return text + fmt::format(" {:>16}\n", memory_text(row.bytes * count.ranks));
}

std::string giga_text(double bytes) {
    return fmt::format("{:.1f} GB", bytes / 1e9);
}

// The paper's figures, and what is taken in their place.
std::string text_of_stages(const SessionPlan& plan, std::uint32_t ranks) {
    const auto stages = zero_stage_bytes(count_parameters(plan.model.units).all, ranks);
    std::string text = "ZeRO's count, all in a rank's device, 16 bits, K = 12:\n ";
    for (std::size_t stage = 0; stage < stages.size(); ++stage)
        text += fmt::format(" stage {} {}{}", stage, giga_text(stages[stage]), stage == 3 ? "\n" : ",");
    const auto taken = [](std::uint64_t bytes) { return giga_text(static_cast<double>(bytes)); };
    return text + fmt::format("taken of a rank here, with sums {}:\n  {} of a device, {} of host memory, {} of NVMe\n",
                              word_of(plan.options.ranks.sum_order), taken(plan.memory.device_bytes),
                              taken(plan.memory.budget.used_bytes()), taken(plan.store_bytes()));
}

// The nearest one that is there.
fs::path existing(const std::string& directory) {
    std::error_code none;
    fs::path path = fs::absolute(directory, none);
    while (!fs::exists(path, none) && path.has_relative_path()) path = path.parent_path();
    return path;
}

}  // namespace

WireBytes wire_bytes(const SessionPlan& of_rank, std::uint64_t passes) {
    const ModelLayout& layout = of_rank.layout;
    const std::uint64_t others = layout.partition().ranks - 1;
    const bool each_pass = of_rank.options.ranks.sum_order == SumOrder::ranks_first;
    WireBytes wire;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        PENSTOCK_CHECK(others == 0 || layout.stays(unit), "unit {} is gathered for each visit", unit);
        const UnitLayout& of = layout.unit(unit);
        const auto bytes = [&](std::uint64_t numel, Training training) {
            return others * numel * bytes_of(of.weight_type(training, layout.format()));
        };
        wire.gathered += bytes(of.shard_numel(), Training::trainable);
        wire.gathered_first += bytes(of.frozen_shard_numel(), Training::frozen);
        wire.exchanged +=
            others * of.shard_numel() * bytes_of(of_rank.options.gradient_type) * (each_pass ? passes : 1);
    }
    wire.gathered_first += wire.gathered;
    return wire;
}

void check_node(const SessionPlan& of_rank, const RankCount& count) {
    const RankRoom own = RankRoom::read(of_rank.memory.budget.used_bytes(), of_rank.room.host);
    const std::vector<RankRoom> node(count.sharing(), own);
    if (const std::string lacking = lacking_room(node, of_rank.options.names.host_budget); !lacking.empty())
        throw Error(ExitCode::does_not_fit, lacking);
}

std::uint64_t free_bytes_of(const std::vector<std::string>& directories) {
    std::set<dev_t> seen;
    std::uint64_t bytes = 0;
    for (const std::string& directory : directories) {
        const fs::path path = existing(directory);
        std::error_code unknown;
        struct stat place {};
        if (::stat(path.c_str(), &place) != 0 || !seen.insert(place.st_dev).second) continue;
        const fs::space_info space = fs::space(path, unknown);
        if (!unknown) bytes += space.available;
    }
    return bytes;
}

std::string ranks_table(const SessionPlan& of_rank, const RankCount& count, std::uint64_t passes,
                        std::uint64_t free_bytes) {
    std::string text = head_of(count);
    for (const Row& row : rows_of(of_rank, passes)) text += text_of(row, count);
    const std::uint64_t stores = of_rank.store_bytes() * count.sharing();
    text += fmt::format("this machine has {} of host memory ({})", memory_text(of_rank.room.host.available_bytes),
                        of_rank.room.host.limited_by);
    if (stores > 0 && free_bytes > 0)
        text += fmt::format(" and {} free where stores lie{}", memory_text(free_bytes),
                            stores > free_bytes ? ", too little for new ones" : "");
    text += "\na rank sends as many bytes over the wire as it receives; small calls are beside them\n";
    return text + text_of_stages(of_rank, count.ranks);
}

}  // namespace penstock::zero
