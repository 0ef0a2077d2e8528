// What torch itself computed, recorded by tests/oracle/optimizers.py, which says how.
#include "tests/oracle/named_optimizer.h"
#include "tests/zero_infinity/kernels/values.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace penstock::zero {
namespace {

std::vector<float> floats(std::istream& line) {
    std::vector<float> values;
    for (std::string word; line >> word;)
        values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16))));
    return values;
}

struct Golden {
    std::vector<float> start;
    std::vector<std::vector<float>> gradients;
    struct Case {
        std::string title;
        double rate = 0;
        std::unique_ptr<Optimizer> optimizer;
        struct After {
            std::uint64_t step = 0;
            std::size_t array = 0;  // masters, then moments
            std::vector<float> values;
        };
        std::vector<After> after;
    };
    std::vector<Case> cases;
};

Golden::Case read_case(std::istringstream& words) {
    Golden::Case made;
    std::string name;
    words >> name >> made.rate;
    std::vector<std::string> options;
    for (std::string word; words >> word;) options.push_back(word);
    made.optimizer = oracle::named_optimizer(name, options);
    made.title = words.str();
    return made;
}

Golden read_golden() {
    std::ifstream file(PENSTOCK_SOURCE_DIR "/tests/oracle/optimizers.golden");
    Golden golden;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string kind;
        words >> kind;
        if (kind == "start") golden.start = floats(words);
        if (kind == "gradient") golden.gradients.push_back(floats(words));
        if (kind == "case") golden.cases.push_back(read_case(words));
        if (kind == "after") {
            Golden::Case::After after;
            words >> after.step >> after.array;
            after.values = floats(words);
            golden.cases.back().after.push_back(after);
        }
    }
    return golden;
}

TEST(OptimizersGolden, EveryOptimizerHasTorchsBitsWhenEachOperationIsRoundedByItself) {
    const Golden golden = read_golden();
    ASSERT_EQ(golden.cases.size(), 11U);
    for (const Golden::Case& each : golden.cases) {
        SCOPED_TRACE(each.title);
        std::vector<std::vector<float>> arrays{golden.start};
        for (std::uint32_t moment = 0; moment < each.optimizer->moments(); ++moment)
            arrays.emplace_back(golden.start.size(), each.optimizer->initial_moment(moment));
        ASSERT_EQ(each.after.size(), 2 * arrays.size());
        for (std::uint64_t step = 1; step <= golden.gradients.size(); ++step) {
            UpdateSpan span{.master = arrays[0].data(),
                            .gradient = golden.gradients[step - 1].data(),
                            .count = golden.start.size()};
            for (std::size_t moment = 1; moment < arrays.size(); ++moment)
                span.moments[moment - 1] = arrays[moment].data();
            each.optimizer->update(span, {step, each.rate});
            for (const auto& after : each.after) {
                if (after.step != step) continue;
                EXPECT_EQ(test::first_difference(arrays.at(after.array), after.values), -1)
                    << "step " << step << ", array " << after.array;
            }
        }
    }
}

}  // namespace
}  // namespace penstock::zero
