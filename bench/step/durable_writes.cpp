#include "bench/step/durable_writes.h"

#include "bench/io/block_source.h"

#include <algorithm>

namespace penstock::bench {
namespace {

constexpr std::uint32_t block_bytes = 1U << 20;
constexpr std::size_t depth = 8;
constexpr std::uint64_t most_bytes = 4ULL << 30;

std::uint64_t whole_blocks(double bytes) {
    return std::clamp(static_cast<std::uint64_t>(bytes), std::uint64_t{block_bytes}, most_bytes) / block_bytes *
           block_bytes;
}

class FlushSource final : public RequestSource {
   public:
    explicit FlushSource(const aio::File& file) : file_(file) {}
    bool next(std::size_t /*slot*/, aio::TransferRequest& request) noexcept override {
        if (asked_) return false;
        asked_ = true;
        request = {.kind = aio::IoKind::flush, .file = &file_};
        return true;
    }

   private:
    const aio::File& file_;
    bool asked_ = false;
};

}  // namespace

DurableWrites::DurableWrites(const std::string& directory, double bytes, Interruption& stop)
    : file_(directory, "durable", whole_blocks(bytes)),
      rig_(file_.file(), {.lease_bytes = std::vector<std::size_t>(depth, block_bytes),
                          .limits = plain_limits(block_bytes, depth * block_bytes),
                          .backend = {},
                          .registration = RingRegistration::wanted}),
      stop_(stop) {
    rate();  // the first time over is no overwriting
}

double DurableWrites::rate() {
    BlockSource once(file_.file(),
                     {.work = Work::write, .block_bytes = block_bytes, .file_bytes = file_.bytes(), .once = true});
    FlushSource flush(file_.file());
    const Stopwatch watch;
    rig_.run(once, {}, stop_);
    rig_.run(flush, {}, stop_);
    return static_cast<double>(file_.bytes()) / watch.seconds();
}

}  // namespace penstock::bench
