#include "zero_infinity/plan/model_spec.h"

#include "aio/words/error.h"
#include "zero_infinity/optimizer/update.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

namespace penstock::zero {

StateFormat format_of(const std::string& codec, const Optimizer& optimizer) {
    const Codec* found = find_codec(codec);
    if (found == nullptr)
        throw Error(ExitCode::usage,
                    fmt::format("there is no codec '{}'; known are: {}", codec, fmt::join(codec_names(), ", ")));
    if (!found->exact && never_forgets(optimizer))
        throw Error(ExitCode::usage,
                    fmt::format("optimizer {} keeps a sum that never forgets, and under the lossy codec '{}' it "
                                "would stop growing; use an exact codec",
                                optimizer.name(), codec));
    return state_format(*found, optimizer);
}

std::string fingerprint_of(const ModelSpec& model, const std::string& codec) {
    const std::string optimizer = model.optimizers.others().name();
    std::string text = fmt::format("{} {} {}\n", codec, optimizer, model.optimizers.moments());
    for (const UnitSpec& unit : model.units) {
        for (const ParameterSpec& parameter : unit.parameters) {
            text += fmt::format("{}/{} {} {}\n", unit.name, parameter.name, fmt::join(parameter.shape, "x"),
                                parameter.training == Training::frozen ? "frozen" : "trainable");
            const std::string own = model.optimizers.group_of(unit.name, parameter.name).optimizer->name();
            if (parameter.training == Training::trainable && own != optimizer)
                text += fmt::format("updated by {}\n", own);
        }
        if (unit.frozen_type) text += fmt::format("frozen as {}\n", word_of(*unit.frozen_type));
        for (const BorrowedSpec& borrowed : unit.borrowed) {
            const UnitSpec& owner = model.units[borrowed.owner];
            text += fmt::format("{} borrows {}/{}\n", unit.name, owner.name, owner.parameters[borrowed.parameter].name);
        }
    }
    return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace penstock::zero
