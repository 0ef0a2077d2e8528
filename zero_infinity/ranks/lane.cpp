#include "zero_infinity/ranks/lane.h"

#include "aio/words/check.h"
#include "zero_infinity/ranks/call_notice.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace penstock::zero {
namespace {

constexpr std::size_t largest_element = 4;  // bytes: pieces end between elements
// A rank that has found a difference leaves its bulk calls, and the others lose it there, perhaps a moment before they
// have found the same.
constexpr std::chrono::seconds patience{1};

// One that was posted, until it is made.
struct Posted {
    CallNotice notice;
    GatherCall gather;
    ReduceCall reduce;
    std::vector<std::byte> mine;  // of a small one
    std::span<std::byte> all;     // the same
    Inputs inputs = Inputs::there;
    bool compared = false;

    bool is_small() const noexcept { return notice.kind == CallKind::small; }
    bool may_be_made() const noexcept { return compared && inputs == Inputs::there; }
};

}  // namespace

// All members behind mutex_, but for the inside of a call that is under way: that is the thread's which makes it.
class Lane::Calls {
   public:
    Calls(Transport& bulk, Transport& control, std::span<std::byte> area, LaneOptions options)
        : bulk_(&bulk), control_(&control), area_(area), options_(std::move(options)) {
        PENSTOCK_CHECK(bulk.ranks() == control.ranks() && bulk.rank() == control.rank(), "rank {} of {} and {} of {}",
                       bulk.rank(), bulk.ranks(), control.rank(), control.ranks());
        PENSTOCK_CHECK(&bulk != &control, "one transport for bulk and control");
        options_.piece_bytes -= options_.piece_bytes % largest_element;
        PENSTOCK_CHECK(options_.piece_bytes > 0, "pieces of less than one element");
        PENSTOCK_CHECK(area.size() >= bulk.ranks() * options_.piece_bytes, "{} bytes for a piece of {} from {} ranks",
                       area.size(), options_.piece_bytes, bulk.ranks());
        comparing_ = std::thread([this] { run(&Calls::compare); });
        making_ = std::thread([this] { run(&Calls::make); });
    }

    ~Calls() {
        if (!finished_) fail(Error(ExitCode::internal, "the session was closed before its calls were finished"));
        {
            const std::lock_guard lock(mutex_);
            over_ = true;
            changed_.notify_all();
        }
        comparing_.join();
        making_.join();
    }

    Number post(Posted call) {
        const std::lock_guard lock(mutex_);
        if (ended_) throw *ended_;
        PENSTOCK_CHECK(!finished_, "a call behind the end");
        PENSTOCK_CHECK(call.is_small() || call.notice.unit < options_.units.size(), "unit {} of {}", call.notice.unit,
                       options_.units.size());
        call.notice.number = ++posted_;
        calls_.emplace(posted_, std::move(call));
        changed_.notify_all();
        return posted_;
    }

    void ready(Number number) {
        const std::lock_guard lock(mutex_);
        if (ended_) return;
        const auto found = calls_.find(number);
        PENSTOCK_CHECK(found != calls_.end() && found->second.inputs != Inputs::there, "call {} is ready already",
                       number);
        found->second.inputs = Inputs::there;
        changed_.notify_all();
    }

    bool done(Number number) const {
        const std::lock_guard lock(mutex_);
        const bool made = made_locked(number);
        if (!made && ended_) throw *ended_;
        return made;
    }

    void wait(Number number) {
        std::unique_lock lock(mutex_);
        check_own_inputs(number);
        changed_.wait(lock, [&] { return ended_ || made_locked(number); });
        if (!made_locked(number)) throw *ended_;
    }

    // Who has posted less, or more, has something else at this number.
    void finish() {
        Posted last;
        last.notice.kind = CallKind::small;
        set_what(last.notice, "the end");
        const Number number = post(std::move(last));
        std::unique_lock lock(mutex_);
        check_own_inputs(number - 1);
        changed_.wait(lock, [&] { return ended_ || calls_.empty(); });
        if (!calls_.empty()) throw *ended_;
        finished_ = true;
    }

    void fail(const Error& cause) noexcept {
        const std::lock_guard lock(mutex_);
        if (!ended_) ended_ = cause;
        abort();
        changed_.notify_all();
    }

    LaneCounters counters() const {
        const std::lock_guard lock(mutex_);
        return counters_;
    }

    const Transport& bulk() const noexcept { return *bulk_; }

   private:
    using Turn = bool (Calls::*)(std::unique_lock<std::mutex>&);

    // Until there is no further turn. What one throws ends the lane.
    void run(Turn turn) noexcept {
        std::unique_lock lock(mutex_);
        try {
            while ((this->*turn)(lock)) changed_.notify_all();
        } catch (const Error& error) {
            end(lock, turn, error);
        } catch (const std::exception& error) {
            end(lock, turn, Error(ExitCode::internal, error.what()));
        }
    }
    void end(std::unique_lock<std::mutex>& lock, Turn turn, const Error& cause) noexcept {
        if (!lock.owns_lock()) lock.lock();
        if (turn == &Calls::compare) in_control_ = false;
        if (cause.code() == ExitCode::peer_lost)
            changed_.wait_for(lock, patience, [&] { return ended_ || !in_control_; });
        if (!ended_) ended_ = cause;
        abort();
        changed_.notify_all();
    }
    void abort() noexcept {
        bulk_->abort(ended_->what());
        control_->abort(ended_->what());
    }
    bool stopped() const noexcept { return over_ || ended_.has_value(); }

    // The next call is compared, and made if it is a small one.
    bool compare(std::unique_lock<std::mutex>& lock) {
        changed_.wait(lock, [&] { return stopped() || compared_ < posted_; });
        if (stopped()) return false;
        Posted& call = calls_.at(compared_ + 1);
        in_control_ = true;
        lock.unlock();
        const std::string different = difference_at(*control_, call.notice, options_.units);
        if (different.empty() && call.is_small()) make_small(call);
        lock.lock();
        in_control_ = false;
        if (!different.empty()) {  // every rank finds it by itself, so its control call must be let end: no abort here
            if (!ended_) ended_ = Error(ExitCode::usage, different);
            changed_.notify_all();
            return false;
        }
        call.compared = true;
        ++compared_;
        if (call.is_small()) count_and_forget(compared_);
        return true;
    }

    // The next gather or reduce is made, once it may be. The small ones between were or will be made by the other
    // thread.
    bool make(std::unique_lock<std::mutex>& lock) {
        auto next = calls_.end();
        changed_.wait(lock, [&] {
            next = std::ranges::find_if(calls_, [](const auto& each) { return !each.second.is_small(); });
            return stopped() || (next != calls_.end() && next->second.may_be_made());
        });
        if (stopped()) return false;
        Posted& call = next->second;
        lock.unlock();
        make_large(call);
        lock.lock();
        count_and_forget(next->first);
        return true;
    }

    void make_small(const Posted& call) {
        const std::size_t bytes = call.mine.size();
        if (bytes > 0) control_->all_gather(call.mine, {call.all.data(), bytes, bytes});
    }
    void make_large(const Posted& call) {
        if (call.notice.kind == CallKind::gather)
            gather_in_pieces(*bulk_, call.gather.shard, call.gather.all, options_.piece_bytes);
        else
            reduce_in_pieces(*bulk_, call.reduce, area_, options_.piece_bytes);
    }

    void count_and_forget(Number number) {
        const auto made = calls_.find(number);
        const CallNotice& notice = made->second.notice;
        const std::uint64_t from_others = notice.bytes * (bulk_->ranks() - 1);
        ++counters_.calls;
        if (notice.kind == CallKind::gather) counters_.gathered_bytes += from_others;
        if (notice.kind == CallKind::reduce) counters_.exchanged_bytes += from_others;
        calls_.erase(made);
    }

    bool made_locked(Number number) const {
        PENSTOCK_CHECK(number > 0 && number <= posted_, "call {} of {}", number, posted_);
        return !calls_.contains(number);
    }
    // Who waits for what he must make himself waits for ever.
    void check_own_inputs(Number number) const {
        const auto waited = calls_.find(number);
        if (waited == calls_.end() || waited->second.is_small()) return;
        for (const auto& [earlier, call] : calls_)
            PENSTOCK_CHECK(earlier > number || call.inputs != Inputs::from_owner,
                           "who waits for call {} must first make the inputs of call {}", number, earlier);
    }

    Transport* bulk_;
    Transport* control_;
    std::span<std::byte> area_;  // the making thread's
    LaneOptions options_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::map<Number, Posted> calls_;  // that are not made; places stay
    Number posted_ = 0;
    Number compared_ = 0;  // all up to it; of small ones: made
    LaneCounters counters_;
    bool in_control_ = false;  // the comparing thread is in a call of the control transport's
    std::optional<Error> ended_;
    bool finished_ = false;
    bool over_ = false;

    std::thread comparing_, making_;
};

Lane::Lane(Transport& bulk, Transport& control, std::span<std::byte> area, LaneOptions options)
    : calls_(std::make_unique<Calls>(bulk, control, area, std::move(options))) {}

Lane::~Lane() = default;

Lane::Number Lane::post_gather(std::uint32_t unit, const GatherCall& call, Inputs inputs) {
    PENSTOCK_CHECK(call.all.size() == calls_->bulk().ranks() * call.shard.size(), "{} bytes for {} of each of {} ranks",
                   call.all.size(), call.shard.size(), calls_->bulk().ranks());
    Posted posted;
    posted.notice = {.bytes = call.shard.size(), .kind = CallKind::gather, .unit = unit};
    posted.gather = call;
    posted.inputs = inputs;
    return calls_->post(std::move(posted));
}

Lane::Number Lane::post_reduce(std::uint32_t unit, const ReduceCall& call, Inputs inputs) {
    const std::uint64_t numel = call.sum.size() / bytes_of(call.type);
    const std::uint64_t part = numel * bytes_of(call.wire);
    PENSTOCK_CHECK(call.addend.size() == part * calls_->bulk().ranks(), "{} bytes for {} elements of each of {} ranks",
                   call.addend.size(), numel, calls_->bulk().ranks());
    Posted posted;
    posted.notice = {.bytes = part,
                     .kind = CallKind::reduce,
                     .unit = unit,
                     .form = static_cast<std::uint64_t>(call.wire) << 16 | static_cast<std::uint64_t>(call.type) << 8 |
                             static_cast<std::uint64_t>(call.start)};
    posted.reduce = call;
    posted.inputs = inputs;
    return calls_->post(std::move(posted));
}

Lane::Number Lane::post_small(std::string_view what, std::span<const std::byte> mine, std::span<std::byte> all) {
    PENSTOCK_CHECK(all.size() == calls_->bulk().ranks() * mine.size(), "{} bytes for {} of each of {} ranks",
                   all.size(), mine.size(), calls_->bulk().ranks());
    Posted posted;
    posted.notice = {.bytes = mine.size(), .kind = CallKind::small};
    set_what(posted.notice, what);
    posted.mine.assign(mine.begin(), mine.end());
    posted.all = all;
    return calls_->post(std::move(posted));
}

void Lane::ready(Number number) {
    calls_->ready(number);
}

bool Lane::done(Number number) const {
    return calls_->done(number);
}

void Lane::wait(Number number) {
    calls_->wait(number);
}

void Lane::finish() {
    calls_->finish();
}

void Lane::fail(const Error& cause) noexcept {
    calls_->fail(cause);
}

LaneCounters Lane::counters() const {
    return calls_->counters();
}

}  // namespace penstock::zero
