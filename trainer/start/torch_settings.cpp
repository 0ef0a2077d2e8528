#include "trainer/start/torch_settings.h"

#include <ATen/Context.h>

#include <cstdlib>

namespace penstock::trainer {
namespace {

// Some kernels of torch's add up in whatever order their threads come, attention's backward over long rows for one, as
// tests/gpu/torch_repeats.py shows. Told to refuse what it cannot do in one order, torch takes others, where it has
// them; told to warn alone, it does not. It asks that cuBLAS be told, too, which looks into the environment.
void sum_in_one_order() {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);  // all of it is written before it is read
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

}  // namespace

void tell_torch(const ComputeOptions& options, zero::DeviceKind device) {
    if (options.matmul != MatmulPrecision::highest)
        at::globalContext().setFloat32MatmulPrecision(std::string(word_of(options.matmul)));
    if (options.deterministic && device == zero::DeviceKind::cuda) sum_in_one_order();
}

std::vector<std::string> notes_of_compute(const TrainConfig& config) {
    const bool on_gpu = config.session.device.kind == zero::DeviceKind::cuda;
    std::vector<std::string> notes;
    if (on_gpu && !config.compute.deterministic)
        notes.push_back(
            "the GPU adds up in any order: the same steps, computed again, may have other bits; run.deterministic "
            "true gives them one order");
    if (config.compute.matmul == MatmulPrecision::highest) return notes;
    if (config.settings.boolean("bf16.enabled"))
        notes.push_back("run.matmul \"high\" changes nothing with bf16.enabled: there all products are of bf16");
    else if (!on_gpu)
        notes.push_back("run.matmul \"high\" is for GPUs: torch rounds factors on a processor with AMX for fp16 alone");
    return notes;
}

}  // namespace penstock::trainer
