// store::parse_lock(): never throws; what it takes can be shown, and is written and read back the same.
#include "aio/words/check.h"
#include "swap/format/lock_text.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock::fuzz {
namespace {

void run(std::span<const std::byte> input) {
    const std::string text = text_of(input);
    std::optional<store::LockText> lock = store::parse_lock(text);
    if (!lock) return;
    if (lock->role) {
        PENSTOCK_CHECK(lock->role->device < lock->role->device_count, "device {}", lock->role->device);
        PENSTOCK_CHECK(lock->role->device_count <= store::max_device_count, "{} devices", lock->role->device_count);
    }
    PENSTOCK_CHECK(store::is_possible_job(lock->job) && lock->host.size() <= store::max_host_bytes, "impossible words");
    const std::string written = format(*lock);
    PENSTOCK_CHECK(written.size() == store::lock_text_bytes, "{} bytes", written.size());
    PENSTOCK_CHECK(store::parse_lock(written) == lock, "it was read back as another: {}", written);
}

std::vector<Bytes> seeds() {
    store::LockText lock;
    lock.job = "training run 7";
    for (std::size_t i = 0; i < lock.uuid.size(); ++i) lock.uuid[i] = static_cast<std::byte>(i * 17);
    lock.pid = 4711;
    lock.host = "node3";
    lock.since = "2026-11-21T10:00:00Z";
    std::vector<Bytes> all = {{}, bytes_of(format(lock))};
    lock.role = store::DeviceRole{.store = lock.uuid, .device = 0, .device_count = 1};
    all.push_back(bytes_of(format(lock)));
    lock.role = store::DeviceRole{.store = lock.uuid, .device = 63, .device_count = 64};
    lock.job = std::string(store::max_job_bytes, 'j');
    all.push_back(bytes_of(format(lock)));
    return all;
}

}  // namespace

const FuzzTarget lock_text_target = {.name = "lock_text", .run = run, .mutate = nullptr, .seeds = seeds};

}  // namespace penstock::fuzz
