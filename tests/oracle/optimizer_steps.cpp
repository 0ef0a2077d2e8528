// Runs one optimizer of the library over raw floats: the half of tests/oracle/optimizers.py that is ours.
//   optimizer_steps free|each COUNT STEPS LR NAME [OPTION=VALUE...] < in > out
// in:   free: the masters, then the gradients of each step; the moments begin as the optimizer says
//       each: for each step masters, moments and gradients before it
// out:  after each step masters and moments
// Each array is COUNT floats of the machine's byte order.
#include "tests/oracle/named_optimizer.h"

#include "aio/words/error.h"

#include <cstdio>
#include <string_view>

namespace penstock::oracle {
namespace {

struct Arrays {
    std::vector<float> master;
    std::vector<std::vector<float>> moments;
    std::vector<float> gradient;
};

void read(std::vector<float>& values) {
    if (std::fread(values.data(), sizeof(float), values.size(), stdin) != values.size())
        throw Error(ExitCode::usage, "optimizer_steps: the input ends too early");
}

void write(const std::vector<float>& values) {
    if (std::fwrite(values.data(), sizeof(float), values.size(), stdout) != values.size())
        throw Error(ExitCode::storage, "optimizer_steps: cannot write the output");
}

void run(bool free, std::size_t count, std::uint64_t steps, double rate, const zero::Optimizer& optimizer) {
    Arrays arrays{std::vector<float>(count), {}, std::vector<float>(count)};
    for (std::uint32_t moment = 0; moment < optimizer.moments(); ++moment)
        arrays.moments.emplace_back(count, optimizer.initial_moment(moment));
    zero::UpdateSpan span{.master = arrays.master.data(), .gradient = arrays.gradient.data(), .count = count};
    for (std::uint32_t moment = 0; moment < optimizer.moments(); ++moment)
        span.moments[moment] = arrays.moments[moment].data();
    for (std::uint64_t step = 1; step <= steps; ++step) {
        if (!free || step == 1) read(arrays.master);
        if (!free)
            for (auto& moment : arrays.moments) read(moment);
        read(arrays.gradient);
        optimizer.update(span, {step, rate});
        write(arrays.master);
        for (const auto& moment : arrays.moments) write(moment);
    }
}

}  // namespace
}  // namespace penstock::oracle

int main(int argc, char** argv) {
    try {
        if (argc < 6) throw penstock::Error(penstock::ExitCode::usage, "usage: see the top of optimizer_steps.cpp");
        const std::vector<std::string> options(argv + 6, argv + argc);
        penstock::oracle::run(std::string_view(argv[1]) == "free", std::stoull(argv[2]), std::stoull(argv[3]),
                              std::stod(argv[4]), *penstock::oracle::named_optimizer(argv[5], options));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
