#include "tests/swap/kills/kill_process.h"

#include "tests/child.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>

namespace penstock::testing {
namespace {

class Teller final : public KillListener {
   public:
    explicit Teller(const Child::Say& say) : say_(say) {}
    void hear(std::span<const Told> messages) override {
        say_({reinterpret_cast<const char*>(messages.data()), messages.size_bytes()});
    }

   private:
    const Child::Say& say_;
};

// What the child does.
void live(const std::vector<std::string>& paths, const KillPlan& plan, const KillModel& model, std::uint64_t life,
          const KillOrder& order, const Child::Say& say) {
    Teller listener(say);
    StoreProcess process(paths, plan);
    std::unique_ptr<aio::Backend> backend = process.take_backend();
    KillListener* ear = &listener;
    if (order.point) {
        auto killer = std::make_unique<KillBackend>(std::move(backend), *order.point, listener);
        ear = killer.get();
        backend = std::move(killer);
    }
    aio::Io io(std::move(backend), {});
    const std::string complaint = KillLife(plan, model, life, *ear).run(io, process.directories(), order.commits);
    if (!complaint.empty()) throw std::runtime_error(complaint);
}

// A message that was cut off by the kill is dropped.
std::vector<Told> messages_of(const std::string& text) {
    std::vector<Told> messages(text.size() / sizeof(Told));
    if (!messages.empty()) std::memcpy(messages.data(), text.data(), messages.size() * sizeof(Told));
    return messages;
}

}  // namespace

StoreProcess::StoreProcess(const std::vector<std::string>& paths, const KillPlan& plan) {
    for (const std::string& path : paths) owned_.emplace_back(path, "kill");
    for (store::StoreDirectory& directory : owned_) pointers_.push_back(&directory);
    backend_ = open_backend(pointers_.front()->lock_fd(), {}, plan.backend).backend;
}

std::unique_ptr<aio::Backend> StoreProcess::take_backend() {
    return std::move(backend_);
}

KilledLife run_life(const std::vector<std::string>& paths, const KillPlan& plan, const KillModel& model,
                    std::uint64_t life, const KillOrder& order) {
    std::optional<Child::Clock::time_point> deadline;
    if (order.after) deadline = Child::Clock::now() + *order.after;
    const ChildEnd ended =
        Child([&](const Child::Say& say) { live(paths, plan, model, life, order, say); }).end(deadline);
    KilledLife result{.killed = WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGKILL,
                      .messages = messages_of(ended.said),
                      .complaint = ended.complaint};
    if (!result.killed && ended.status != 0 && result.complaint.empty())
        result.complaint = fmt::format("the process ended with status {:#x}", ended.status);
    return result;
}

Found look(const std::vector<std::string>& paths, const KillPlan& plan, const KillModel& model) {
    StoreProcess process(paths, plan);
    aio::Io io(process.take_backend(), {});
    Found found = examine(io, process.directories(), plan, model);
    found.store.reset();  // before the Io
    return found;
}

}  // namespace penstock::testing
