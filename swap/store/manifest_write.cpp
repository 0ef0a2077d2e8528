#include "swap/store/manifest_write.h"

#include "aio/words/error.h"
#include "pinned_pool/region.h"
#include "swap/format/layout.h"
#include "swap/store/long_work.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace penstock::store {
namespace {

class ManifestWrite final : public LongWork, aio::Transfer {
   public:
    ManifestWrite(aio::Io& io, StoreFiles& files, const Manifest& manifest, std::uint32_t copy)
        : io_(io),
          files_(files),
          place_bytes_(manifest_capacity(Layout(manifest.objects, manifest.geometry))),
          place_(place_bytes_, 1, pool::Registration::none),
          file_(manifest.generation % 2),
          copy_(copy),
          bytes_(encode(manifest, {place_.data(), place_bytes_})) {}

    // The file is O_DSYNC: what was written is durable.
    void start() {
        io_.start(*this, {.kind = aio::IoKind::write,
                          .file = &files_.manifests[file_],
                          .data = place_.data(),
                          .offset_bytes = copy_ * place_bytes_,
                          .bytes = bytes_,
                          .urgency = aio::Urgency::demand});
    }
    using aio::Transfer::error;

    bool finished() const noexcept override { return done_; }
    void stop() noexcept override {}
    void abandon() noexcept override { files_.keep_for_ever(); }
    std::uint64_t done_bytes() const noexcept override { return done_ ? bytes_ : 0; }
    std::uint64_t total_bytes() const noexcept override { return bytes_; }

   private:
    void done() noexcept override { done_ = true; }

    aio::Io& io_;
    StoreFiles& files_;
    std::uint64_t place_bytes_;
    pool::Region place_;
    std::size_t file_;
    std::uint32_t copy_;
    std::size_t bytes_;
    bool done_ = false;
};

}  // namespace

void write_manifest_copy(aio::Io& io, StoreFiles& files, const Manifest& manifest, std::uint32_t copy) {
    const auto written =
        start_and_finish(io, std::make_unique<ManifestWrite>(io, files, manifest, copy), WorkProgress{});
    if (!written->error()) return;
    throw Error(
        ExitCode::storage,
        fmt::format("the newest manifest cannot be made durable before it is built on: {}; nothing was changed. "
                    "Check the device (dmesg, free space).",
                    written->error()->message()));
}

}  // namespace penstock::store
