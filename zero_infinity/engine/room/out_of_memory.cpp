#include "zero_infinity/engine/room/out_of_memory.h"

#include "aio/words/byte_count.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

namespace penstock::engine {
namespace {

bool on_device(const c10::Error& error) {
    return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
}

std::string row(std::string_view what, std::uint64_t bytes, std::string_view setting = "") {
    const std::string less = setting.empty() ? "" : fmt::format("  ({})", setting);
    return fmt::format("  {:<44} {:>12}{}\n", what, bytes_text(bytes), less);
}

std::string beside(const ComputeMemory& memory, const zero::SettingNames& names) {
    std::string rows = row("inputs of units, kept for backward", memory.input_bytes, names.activations);
    rows += row("graphs that are kept", memory.graph_bytes, memory.graphs_stay ? memory.activations_setting : "");
    if (memory.call_bytes > 0) rows += row("one call of a unit, at most so far", memory.call_bytes);
    return rows;
}

}  // namespace

bool is_out_of_memory(const c10::Error& error) {
    return on_device(error) || says_out_of_memory(error.what_without_backtrace());
}

bool says_out_of_memory(std::string_view message) {
    return message.find("DefaultCPUAllocator") != std::string_view::npos ||
           message.find("can't allocate memory") != std::string_view::npos ||
           message.find("could not create a primitive") != std::string_view::npos;  // oneDNN says no more
}

Error out_of_memory(const c10::Error& error, const ComputeMemory& memory, const zero::SettingNames& names) {
    const bool device = on_device(error);
    std::string table = "host memory, the pool:\n" + memory.pool_table;
    if (!table.ends_with('\n')) table += '\n';
    if (memory.device_bytes > 0) {
        table += "device memory:\n" + row("weights on their way", memory.device_bytes, names.device_budget);
    } else {
        table += "host memory, beside the pool:\n";
    }
    table += beside(memory, names);

    std::vector<std::string> less = {"fewer rows in each micro-batch"};
    less.push_back("a lower " + (device ? names.device_budget : names.host_budget));
    if (memory.graphs_stay) less.push_back(memory.activations_setting + " \"auto\"");
    if (memory.input_bytes > 0) less.push_back(names.activations + ", beyond which inputs go to NVMe");
    return {ExitCode::out_of_memory,
            fmt::format("out of memory on the {} while unit '{}' ran: {}\n{}What leaves more room: {}. The last "
                        "committed step is safe",
                        device ? "device" : "host", memory.unit, error.what_without_backtrace(), table,
                        fmt::join(less, "; "))};
}

}  // namespace penstock::engine
