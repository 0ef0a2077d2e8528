// A device without hardware: memory apart from the host's, copies that arrive late, and 0xff wherever nothing may be
// read.

#include "aio/words/check.h"
#include "pinned_pool/region.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/device/device_arena.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace penstock::zero {
namespace {

constexpr int poison = 0xff;  // NaN in bf16, fp16 and fp32

bool meet(const std::byte* one, std::uint64_t one_bytes, const std::byte* other, std::uint64_t other_bytes) {
    const std::less<const std::byte*> before;
    return before(other, one + one_bytes) && before(one, other + other_bytes);
}

void poison_range(std::byte* data, std::uint64_t bytes) noexcept {
    if (bytes > 0) std::memset(data, poison, bytes);
}

// Copies of one direction, in order, by a thread of its own.
class CopyLane {
   public:
    CopyLane(Ticket::Lane lane, std::chrono::microseconds delay)
        : lane_(lane), delay_(delay), thread_([this] { work(); }) {}
    ~CopyLane();
    CopyLane(const CopyLane&) = delete;
    CopyLane& operator=(const CopyLane&) = delete;

    Ticket submit(std::byte* to, const std::byte* from, std::uint64_t bytes);
    bool reached(std::uint64_t number);
    bool wait(std::uint64_t number, std::chrono::nanoseconds timeout);
    void wait(std::uint64_t number);
    bool touches(const std::byte* data, std::uint64_t bytes);  // a copy from or to the range is not done

   private:
    struct Copy {
        std::byte* to;
        const std::byte* from;
        std::uint64_t bytes;
    };

    void work();
    void check_submitted(std::uint64_t number) const;  // REQUIRES: mutex_ is held

    const Ticket::Lane lane_;
    const std::chrono::microseconds delay_;

    std::mutex mutex_;
    std::condition_variable submitted_or_stopped_;
    std::condition_variable one_done_;
    std::deque<Copy> copies_;  // not done; the thread is at the first
    std::uint64_t submitted_count_ = 0;
    std::uint64_t done_count_ = 0;
    bool stopped_ = false;

    std::thread thread_;  // last: it uses all above
};

CopyLane::~CopyLane() {
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    submitted_or_stopped_.notify_all();
    thread_.join();
}

void CopyLane::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        submitted_or_stopped_.wait(lock, [this] { return stopped_ || !copies_.empty(); });
        // The delay ends early when the lane stops.
        if (submitted_or_stopped_.wait_for(lock, delay_, [this] { return stopped_; })) return;
        const Copy copy = copies_.front();
        lock.unlock();
        if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
        lock.lock();
        copies_.pop_front();
        ++done_count_;
        one_done_.notify_all();
    }
}

// The target is poisoned here and not by the thread: whoever reads it before the ticket finds 0xff, and never last
// pass's bytes, which would be right by luck.
Ticket CopyLane::submit(std::byte* to, const std::byte* from, std::uint64_t bytes) {
    poison_range(to, bytes);
    const std::lock_guard lock(mutex_);
    copies_.push_back({to, from, bytes});
    submitted_or_stopped_.notify_all();
    return {lane_, ++submitted_count_};
}

void CopyLane::check_submitted(std::uint64_t number) const {
    PENSTOCK_CHECK(number <= submitted_count_, "ticket {} of {}", number, submitted_count_);
}

bool CopyLane::reached(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    check_submitted(number);
    return number <= done_count_;
}

bool CopyLane::wait(std::uint64_t number, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    check_submitted(number);
    // At most a day: now() + nanoseconds::max() would overflow.
    const auto bounded = std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(24));
    return one_done_.wait_for(lock, bounded, [&] { return number <= done_count_; });
}

void CopyLane::wait(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    check_submitted(number);
    one_done_.wait(lock, [&] { return number <= done_count_; });
}

bool CopyLane::touches(const std::byte* data, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    return std::any_of(copies_.begin(), copies_.end(), [&](const Copy& copy) {
        return meet(copy.to, copy.bytes, data, bytes) || meet(copy.from, copy.bytes, data, bytes);
    });
}

// Which copies compute may be reading. On a device whose compute runs by itself a copy over such memory must come after
// a mark that was set behind that compute; here, where nothing would go wrong without, it aborts.
class Readers {
   public:
    Ticket mark() {
        const std::lock_guard lock(mutex_);
        return {Ticket::Lane::compute, ++marks_};
    }
    void copied(const std::byte* data, std::uint64_t bytes, Ticket ticket) {
        const std::lock_guard lock(mutex_);
        copies_.push_back({data, bytes, ticket.number, std::nullopt});
    }
    void may_read(Ticket ticket) {
        const std::lock_guard lock(mutex_);
        for (Copy& copy : copies_)
            if (copy.number == ticket.number) copy.read_from = marks_;
    }
    void overwritten(const std::byte* data, std::uint64_t bytes, Ticket after) {
        const std::lock_guard lock(mutex_);
        const std::uint64_t mark = after.lane == Ticket::Lane::compute ? after.number : 0;
        PENSTOCK_CHECK(mark <= marks_, "mark {} of {}", mark, marks_);
        std::erase_if(copies_, [&](const Copy& copy) {
            if (!meet(copy.data, copy.bytes, data, bytes)) return false;
            PENSTOCK_CHECK(!copy.read_from || mark > *copy.read_from || after.lane == Ticket::Lane::out,
                           "{} bytes are copied over what compute may be reading since mark {}, after mark {}", bytes,
                           *copy.read_from, mark);
            return true;
        });
    }

   private:
    struct Copy {
        const std::byte* data;
        std::uint64_t bytes;
        std::uint64_t number;                    // of its ticket
        std::optional<std::uint64_t> read_from;  // the newest mark when compute was last let at it
    };
    std::mutex mutex_;
    std::vector<Copy> copies_;  // that nothing was copied over yet
    std::uint64_t marks_ = 0;
};

class EmulatedDevice final : public Device {
   public:
    explicit EmulatedDevice(const DeviceOptions& options)
        : arena_(word_of(DeviceKind::emulated), options.budget_bytes),
          memory_(options.budget_bytes == 0 ? pool::Region()
                                            : pool::Region(options.budget_bytes, 1, pool::Registration::none)),
          in_(Ticket::Lane::in, options.copy_delay),
          out_(Ticket::Lane::out, options.copy_delay) {}

    DeviceKind kind() const noexcept override { return DeviceKind::emulated; }

    std::byte* allocate(std::uint64_t bytes, const std::string& use) override {
        std::byte* data = memory_.data() + arena_.allocate(bytes, use);
        poison_range(data, bytes);
        return data;
    }
    std::uint64_t used_bytes() const noexcept override { return arena_.used_bytes(); }

    // What the copy comes after was waited for by the calling thread, or is a mark, or a copy out, which comes first.
    Ticket copy_in(std::byte* device, const std::byte* host, std::uint64_t bytes, Ticket after) override {
        arena_.check_allocated(memory_.data(), device, bytes);
        check_quiet(device, bytes);
        readers_.overwritten(device, bytes, after);
        if (after.lane == Ticket::Lane::out) out_.wait(after.number);
        const Ticket ticket = in_.submit(device, host, bytes);
        readers_.copied(device, bytes, ticket);
        return ticket;
    }
    Ticket copy_out(std::byte* host, const std::byte* device, std::uint64_t bytes) override {
        arena_.check_allocated(memory_.data(), device, bytes);
        return out_.submit(host, device, bytes);
    }

    bool reached(Ticket ticket) override { return is_past(ticket) || lane(ticket).reached(ticket.number); }
    bool wait(Ticket ticket, std::chrono::nanoseconds timeout) override {
        return is_past(ticket) || lane(ticket).wait(ticket.number, timeout);
    }

    // Without a deadline: the lane's thread is ours and always comes to the ticket.
    void compute_after(Ticket ticket) override {
        if (is_past(ticket)) return;
        lane(ticket).wait(ticket.number);
        if (ticket.lane == Ticket::Lane::in) readers_.may_read(ticket);
    }
    Ticket compute_mark() override { return readers_.mark(); }

    void released(std::byte* device, std::uint64_t bytes) noexcept override {
        arena_.check_allocated(memory_.data(), device, bytes);
        check_quiet(device, bytes);
        poison_range(device, bytes);
    }

   private:
    // Compute is the calling thread: what it has issued has ended.
    static bool is_past(Ticket ticket) { return ticket.number == 0 || ticket.lane == Ticket::Lane::compute; }
    CopyLane& lane(Ticket ticket) {
        PENSTOCK_CHECK(ticket.lane != Ticket::Lane::none, "ticket {} of no lane", ticket.number);
        return ticket.lane == Ticket::Lane::in ? in_ : out_;
    }
    void check_quiet(const std::byte* device, std::uint64_t bytes) {
        PENSTOCK_CHECK(!in_.touches(device, bytes) && !out_.touches(device, bytes),
                       "{} bytes at {} of the emulated device are overwritten while a copy of them is under way", bytes,
                       device - memory_.data());
    }

    DeviceArena arena_;
    pool::Region memory_;
    Readers readers_;
    CopyLane in_;
    CopyLane out_;
};

}  // namespace

std::unique_ptr<Device> make_emulated_device(const DeviceOptions& options) {
    return std::make_unique<EmulatedDevice>(options);
}

}  // namespace penstock::zero
