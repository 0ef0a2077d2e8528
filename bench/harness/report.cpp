#include "bench/harness/report.h"

#include "aio/words/check.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <ostream>
#include <thread>

namespace penstock::bench {

namespace {

constexpr int json_format = 1;  // of the object that json() prints; a change of meaning makes a new one

std::string first_line(const char* path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("model name", 0) == 0) return line.substr(std::min(line.size(), line.find(": ") + 2));
    }
    return "unknown";
}

// Four digits: a share of 1.0049 must not be shown as the 1.005 it is held against.
std::string number(double value) {
    return std::abs(value) >= 100 ? fmt::format("{:.1f}", value) : fmt::format("{:.4f}", value);
}

// A bound of a target, as it is judged: three decimals at most, without zeros at the end.
std::string bound(double value) {
    std::string text = fmt::format("{:.3f}", value);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
    return text;
}

// ">= 0.95, aim 0.98: met"
std::string shown_target(const Figure& figure) {
    if (!figure.target) return {};
    const Target& target = *figure.target;
    return fmt::format("{} {}, aim {}: {}",
                       target.better == Target::Better::higher ? ">=" : "<=", bound(target.at_least), bound(target.aim),
                       to_string(target.judge(figure.median())));
}

nlohmann::ordered_json json_of(const Figure& figure) {
    nlohmann::ordered_json object = {{"name", figure.name}, {"unit", figure.unit},   {"median", figure.median()},
                                     {"low", figure.low()}, {"high", figure.high()}, {"rounds", figure.rounds}};
    if (figure.rounds.size() < min_rounds) object["few_rounds"] = true;
    if (figure.target) {
        const bool higher = figure.target->better == Target::Better::higher;
        object["target"] = {{higher ? "at_least" : "at_most", figure.target->at_least},
                            {"aim", figure.target->aim},
                            {"verdict", to_string(figure.target->judge(figure.median()))}};
    }
    return object;
}

}  // namespace

const char* to_string(Verdict verdict) noexcept {
    switch (verdict) {
        case Verdict::met:
            return "met";
        case Verdict::aim_missed:
            return "aim missed";
        case Verdict::at_least_missed:
            return "at least missed";
    }
    return "unknown";
}

Verdict Target::judge(double value) const noexcept {
    const auto meets = [&](double bound) { return better == Better::higher ? value >= bound : value <= bound; };
    if (!meets(at_least)) return Verdict::at_least_missed;
    return meets(aim) ? Verdict::met : Verdict::aim_missed;
}

double Figure::median() const {
    PENSTOCK_CHECK(!rounds.empty(), "{} has no rounds", name);
    std::vector<double> sorted = rounds;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Figure::low() const {
    PENSTOCK_CHECK(!rounds.empty(), "{} has no rounds", name);
    return *std::min_element(rounds.begin(), rounds.end());
}

double Figure::high() const {
    PENSTOCK_CHECK(!rounds.empty(), "{} has no rounds", name);
    return *std::max_element(rounds.begin(), rounds.end());
}

Figure ratio(std::string name, const Figure& above, const Figure& below) {
    PENSTOCK_CHECK(above.rounds.size() == below.rounds.size(), "{} has {} rounds, {} has {}", above.name,
                   above.rounds.size(), below.name, below.rounds.size());
    Figure result{.name = std::move(name), .unit = {}, .rounds = {}};
    for (std::size_t i = 0; i < above.rounds.size(); ++i) {
        PENSTOCK_CHECK(below.rounds[i] > 0, "round {} of {} is {}", i + 1, below.name, below.rounds[i]);
        result.rounds.push_back(above.rounds[i] / below.rounds[i]);
    }
    return result;
}

void Report::fact(std::string name, std::string value) {
    facts_.emplace_back(std::move(name), std::move(value));
}

void Report::add(Figure figure) {
    PENSTOCK_CHECK(!figure.rounds.empty(), "{} has no rounds", figure.name);
    PENSTOCK_CHECK(find(figure.name) == nullptr, "there is a figure named {} already", figure.name);
    for (const double round : figure.rounds) PENSTOCK_CHECK(std::isfinite(round), "a round of {}", figure.name);
    figures_.push_back(std::move(figure));
}

void Report::command(std::string line) {
    commands_.push_back(std::move(line));
}

void Report::note(std::string line) {
    notes_.push_back(std::move(line));
}

void Report::fail(std::string message) {
    failure_ = std::move(message);
}

const Figure* Report::find(const std::string& name) const noexcept {
    const auto found = std::find_if(figures_.begin(), figures_.end(), [&](const Figure& f) { return f.name == name; });
    return found == figures_.end() ? nullptr : &*found;
}

void Report::print(std::ostream& out) const {
    for (const auto& [name, value] : facts_) out << fmt::format("{}: {}\n", name, value);
    std::size_t width = 6;
    for (const Figure& figure : figures_) width = std::max(width, figure.name.size());
    out << fmt::format("\n{:<{}}  {:>10}  {:>10}  {:>10}  {:>6}  {:<6}  target\n", "figure", width, "median", "lowest",
                       "highest", "rounds", "unit");
    bool few = false;
    for (const Figure& figure : figures_) {
        const bool marked = figure.rounds.size() < min_rounds;
        few = few || marked;
        std::string line = fmt::format("{:<{}}  {:>10}  {:>10}  {:>10}  {:>6}  {:<6}  {}", figure.name, width,
                                       number(figure.median()), number(figure.low()), number(figure.high()),
                                       fmt::format("{}{}", figure.rounds.size(), marked ? "*" : ""),
                                       figure.unit.empty() ? "ratio" : figure.unit, shown_target(figure));
        line.erase(line.find_last_not_of(' ') + 1);
        out << line << '\n';
    }
    if (few || !notes_.empty() || !commands_.empty()) out << '\n';
    if (few) out << fmt::format("* fewer than {} rounds: an impression, not a measurement\n", min_rounds);
    for (const std::string& line : notes_) out << line << '\n';
    for (const std::string& line : commands_) out << "ran: " << line << '\n';
}

std::string Report::json() const {
    nlohmann::ordered_json root;
    root["format"] = json_format;
    root["verb"] = verb_;
    if (failure_) root["error"] = *failure_;
    root["facts"] = nlohmann::ordered_json::object();
    for (const auto& [name, value] : facts_) root["facts"][name] = value;
    root["figures"] = nlohmann::ordered_json::array();
    for (const Figure& figure : figures_) root["figures"].push_back(json_of(figure));
    root["commands"] = commands_;
    root["notes"] = notes_;
    // A path in a fact may be anything: bytes that are no UTF-8 are replaced, not refused.
    return root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void add_machine_facts(Report& report) {
    utsname name = {};
    ::uname(&name);
    report.fact("kernel", fmt::format("{} {}", name.sysname, name.release));
    report.fact("processor", fmt::format("{} x {}", std::thread::hardware_concurrency(), processor()));
    report.fact("memory", first_line("/proc/meminfo"));
    report.fact("transparent huge pages", first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
}

}  // namespace penstock::bench
