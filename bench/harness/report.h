// What a measurement says: figures with median and spread over rounds, for people and for machines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::bench {

enum class Verdict : std::uint8_t { met, aim_missed, at_least_missed };
const char* to_string(Verdict verdict) noexcept;

// What the project promises of a figure; the median is held against it.
struct Target {
    enum class Better : std::uint8_t { higher, lower };
    double at_least = 0;  // with Better::lower: at most
    double aim = 0;
    Better better = Better::higher;

    Verdict judge(double value) const noexcept;  // meets both, misses the aim only, or misses both
};

// One quantity, measured once per round. Rounds of figures that are compared are interleaved: round i of each was taken
// within the same seconds.
struct Figure {
    std::string name;  // "read 1 MiB x 8: penstock"
    std::string unit;  // "GB/s", "ms", "s/GB", "" for a ratio
    std::vector<double> rounds;
    std::optional<Target> target;

    double median() const;  // REQUIRES: rounds; of an even number, the mean of the middle two
    double low() const;     // the smallest round
    double high() const;
};

inline constexpr std::size_t min_rounds = 5;  // fewer are shown as such

// `above` ÷ `below`, round by round, so that what drifts hits both. REQUIRES: equally many rounds, `below`
// positive in each.
Figure ratio(std::string name, const Figure& above, const Figure& below);

// Owned by one thread. Prints nothing before print() or json().
class Report {
   public:
    explicit Report(std::string verb) : verb_(std::move(verb)) {}

    // What the figures depend on: machine, directory, sizes, versions. In the order they are added.
    void fact(std::string name, std::string value);
    void add(Figure figure);  // REQUIRES: a new name, at least one round, finite rounds
    // A command of another program that was measured, as it was run.
    void command(std::string line);
    // One line for people: what was left out and why, what to do about it.
    void note(std::string line);
    // The measurement ended early: json() says so, beside the figures that were taken before.
    void fail(std::string message);
    // Another process of the same measurement has the result, or tells the error: nothing of this one is written.
    void keep_quiet() noexcept { quiet_ = true; }
    bool quiet() const noexcept { return quiet_; }

    const std::vector<Figure>& figures() const noexcept { return figures_; }
    const Figure* find(const std::string& name) const noexcept;  // null when there is none
    void print(std::ostream& out) const;                         // a table: median, lowest, highest, rounds, target
    std::string json() const;                                    // one object, figures with all their rounds

   private:
    std::string verb_;
    std::vector<std::pair<std::string, std::string>> facts_;
    std::vector<Figure> figures_;
    std::vector<std::string> commands_;
    std::vector<std::string> notes_;
    std::optional<std::string> failure_;
    bool quiet_ = false;
};

// Kernel, processors, memory, huge-page setting; the facts every report begins with.
void add_machine_facts(Report& report);

}  // namespace penstock::bench
