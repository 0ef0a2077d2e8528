// Calls that fail while a snapshot takes its origin's blocks, on a real XFS: it shares them, copies, or is refused by
// name, and the origin goes on without room set aside for nothing.
#include "aio/words/error.h"
#include "tests/swap/block_device/sharing_store.h"
#include "tests/swap/calls/call_watch.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

namespace penstock::testing {
namespace {

class SharingCalls : public OnXfs {};

enum class Blocks : std::uint8_t { shared, copied, refused };

struct Outcome {
    Blocks blocks = Blocks::refused;
    std::string wrong;
};

Outcome keep_with(SharingStore& origin, const std::string& name, const CallFault& fault) {
    Outcome outcome;
    store::StoreDirectory target(origin.path_of(name), "test");
    const aio::ScratchMemory memory(2 * SharingStore::longest_extent);
    watch_calls(fault);
    try {
        auto copy = create_snapshot(origin.io(), origin.store(), target, aio::Caching::direct, store::Blocks::shared);
        end_watch();
        outcome.blocks = copy->shares_blocks() ? Blocks::shared : Blocks::copied;
        const store::SnapshotCopy copying(origin.store(), std::move(copy), memory.span());
        while (!copying.finished()) origin.io().wait(std::chrono::seconds(1));
        if (copying.error()) outcome.wrong = copying.error()->message;
    } catch (const Error& error) {
        end_watch();
        const std::string words = error.what();
        if (words.find("/data") == std::string::npos && words.find(target.path()) == std::string::npos)
            outcome.wrong = "refused without a place: " + words;
    }
    return outcome;
}

// What the call says, and how often each end was reached.
std::string fail_each(SharingStore& origin, std::size_t call, int error, std::array<int, 3>& ends) {
    for (std::uint64_t ordinal = 0;; ++ordinal) {
        const std::string name = fmt::format("{}-{}-{}", call, error, ordinal);
        const CallFault fault{.call = call, .ordinal = ordinal, .error = error, .recurs = Recurs::once};
        const auto complaint = [&](const std::string& words) {
            return words.empty() ? words : to_string(fault) + ": " + words;
        };
        const Outcome outcome = keep_with(origin, name, fault);
        if (watched().struck == 0) return origin.go_on(2);
        ++ends[static_cast<std::size_t>(outcome.blocks)];
        if (!outcome.wrong.empty()) return complaint(outcome.wrong);
        if (outcome.blocks != Blocks::shared && origin.room_bytes() != 0) return complaint("room is set aside");
        const TileSeeds seeds = origin.moving().committed();
        const store::ClientState client = origin.moving().client();
        if (const std::string wrong = origin.go_on(2); !wrong.empty()) return complaint(wrong);
        if (outcome.blocks == Blocks::refused) continue;
        if (const std::string wrong = origin.snapshot_difference(name, seeds, client); !wrong.empty())
            return complaint(wrong);
    }
}

TEST_F(SharingCalls, ThatFailEndInASnapshotOrInAnErrorThatLeavesNoRoomBehind) {
    on_xfs([](const std::string& root) {
        SharingStore origin(root);
        std::string wrong = origin.go_on(3);
        std::array<int, 3> ends{};
        const std::array<std::pair<std::size_t, int>, 6> faults = {{{call_of("ioctl"), EIO},
                                                                    {call_of("ioctl"), ENOSPC},
                                                                    {call_of("ioctl"), EOPNOTSUPP},
                                                                    {call_of("ioctl"), EINTR},
                                                                    {call_of("fallocate"), ENOSPC},
                                                                    {call_of("ftruncate"), EIO}}};
        for (const auto& [call, error] : faults)
            if (wrong.empty()) wrong = fail_each(origin, call, error, ends);
        for (const int times : ends)
            if (wrong.empty() && times == 0) wrong = "an end was never reached";
        return wrong;
    });
}

}  // namespace
}  // namespace penstock::testing
