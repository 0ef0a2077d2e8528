#include "zero_infinity/measure/forecast_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace penstock::zero {
namespace {

double giga(double bytes) {
    return bytes / 1e9;
}

std::string rate_text(const ToldStep& told) {
    if (told.tokens == 0) return {};
    return fmt::format("{:.0f} tokens/s, ", static_cast<double>(told.tokens) / told.step.seconds);
}

// From how much on the NVMe costs nothing.
std::string hiding_text(const ToldStep& told) {
    if (told.tokens == 0)
        return fmt::format("from {:.1f} times this batch on, compute takes as long as the NVMe",
                           told.lanes.hiding_compute);
    return fmt::format("from {:.0f} tokens per step on (now {}), compute takes as long as the NVMe",
                       told.tokens_that_hide_nvme(), told.tokens);
}

std::string bottleneck_text(const ToldStep& told) {
    const std::string seconds =
        fmt::format("{:.2f} s of NVMe, {:.2f} s of the processor", told.lanes.nvme, told.lanes.processor);
    switch (told.lanes.bottleneck) {
        case Bottleneck::processor:
            return fmt::format("the processor ({})", seconds);
        case Bottleneck::order:
            return fmt::format("the order of updates: what is left waits for the other ({})", seconds);
        case Bottleneck::nvme:
            return fmt::format("the NVMe ({}); {}", seconds, hiding_text(told));
        case Bottleneck::both:
            break;
    }
    return fmt::format("both about equally ({}); {}", seconds, hiding_text(told));
}

std::string days_text(const ToldStep& told) {
    if (told.days_to_endurance() == 0) return {};
    return fmt::format(": {:.0f} days to the rated {:.0f} TB", told.days_to_endurance(), told.endurance_bytes / 1e12);
}

}  // namespace

double ToldStep::days_to_endurance() const noexcept {
    const double each = written_bytes_per_day();
    return each > 0 && endurance_bytes > 0 ? endurance_bytes / each : 0;
}

std::string report_line(const std::string& name, const std::string& text) {
    return fmt::format("{:<12} {}\n", name, text);
}

// Where it is worth a line.
std::string contention_line(const Contention& kept) {
    if (kept.compute > 0.95 && kept.device > 0.95) return "";
    return report_line("",
                       fmt::format("while compute and the device are both at it, they keep {:.0f} % and {:.0f} % of "
                                   "their speed",
                                   100 * kept.compute, 100 * kept.device));
}

std::string report_of(const MachineRates& rates) {
    const DeviceRates& device = rates.device.rates;
    return report_line("measured", fmt::format("device {:.2f} GB/s read, {:.2f} written, {:.2f} both at once (in {}), "
                                               "durable after {:.1f} ms",
                                               giga(device.read), giga(device.write), giga(device.both),
                                               fmt::join(rates.device.places, ", "), rates.device.flush * 1e3)) +
           report_line("", fmt::format("hash {:.1f} GB/s, update {:.0f} M parameters/s, with {} threads on {} cores",
                                       1e-9 / rates.host.hash_per_byte, 1e-6 / rates.host.update_per_element,
                                       rates.threads, rates.cores)) +
           contention_line(rates.device.contention);
}

// Where anything but weights and states goes there and comes back.
std::string spills_text(const StepForecast& step) {
    return step.wait_spills == 0 ? "" : fmt::format(", for activations and gradients {:.3f}", step.wait_spills);
}

std::string lost_text(const StepForecast& step) {
    return step.lost < 0.01 * step.seconds ? "" : fmt::format(", lost to what serves the NVMe {:.3f}", step.lost);
}

std::string report_of(const ToldStep& told) {
    const StepForecast& step = told.step;
    return report_line("step",
                       fmt::format("{:.3f} s, {}{}: forward {:.3f}, backward {:.3f}, update {:.3f}, commit {:.3f} s; "
                                   "of it waiting for weights {:.3f}, for states {:.3f}{} s",
                                   step.seconds, rate_text(told), word_of(told.order), step.forward, step.backward,
                                   step.update, step.commit, step.wait_weights, step.wait_tiles, spills_text(step))) +
           report_line("lanes", fmt::format("compute {:.3f}, update {:.3f}, NVMe reads {:.3f}, writes {:.3f}, hash "
                                            "and submission {:.3f}{} s",
                                            step.compute, step.updating, step.reading, step.writing, step.driver,
                                            lost_text(step))) +
           report_line("decides", bottleneck_text(told)) +
           report_line("wear", fmt::format("{:.2f} TB written per day at this pace{}",
                                           told.written_bytes_per_day() / 1e12, days_text(told)));
}

}  // namespace penstock::zero
