#include "zero_infinity/session/model_reader.h"

#include "aio/words/error.h"
#include "zero_infinity/session/session_info.h"

#include <fmt/format.h>

namespace penstock::zero {
namespace {

ModelLayout layout_of(const ModelSpec& model, const CoreOptions& options) {
    return ModelLayout({.units = model.units,
                        .format = format_of(options.codec, model.optimizers.others()),
                        .optimizers = model.optimizers,
                        .tile_numel = options.tile_numel});
}

store::OpenStore found(const CoreOptions& options) {
    store::OpenStore open = store::OpenStore::find(options.swap_directories, store::Sharing::shared, options.remedies);
    open.start_io(
        {.caching = options.caching, .backend = options.backend, .limits = {.deadline = options.io_deadline}});
    open.open({.verify = store::VerifyScope::none});  // each tile is, as it is read
    return open;
}

}  // namespace

ModelReader::ModelReader(const ModelSpec& model, const CoreOptions& options)
    : layout_(layout_of(model, options)), open_(found(options)) {
    const store::ClientState& client = open_.store().client();
    const auto stored = client.find(fingerprint_key);
    if (stored == client.end() || stored->second != fingerprint_of(model, options.codec))
        throw Error(
            ExitCode::usage,
            fmt::format("the store in {} was made for another model, codec or optimizer ({}); read it with the "
                        "units, types and codec that it was made with",
                        options.swap_directories.front(), layout_.difference(open_.store().layout().objects())));
    layout_.check_stored(open_.store().layout());
}

void ModelReader::read_out(const ReadOut& what, WeightSink& sink) {
    zero::read_out({.layout = &layout_, .read = blocking_reads(open_.io(), open_.store())}, what, sink);
}

}  // namespace penstock::zero
