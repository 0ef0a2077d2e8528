// What is done to a store while one call fails, and what must be true afterwards.
#pragma once

#include "aio/io.h"
#include "tests/swap/calls/call_watch.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::testing {

// The fault is armed before act() and disarmed by begin() ... end(), or when act() has ended.
class CallScope {
   public:
    explicit CallScope(std::optional<CallFault> fault) : fault_(fault) {}
    // From here on, and not before: for a scene that needs something to stand on first.
    void begin() const { watch_calls(fault_); }
    void end() const { end_watch(); }
    // Of the Io: short where something is waited for that never comes.
    std::chrono::milliseconds deadline() const {
        const bool waits = fault_ && fault_->call == call_of("flock");
        return waits ? std::chrono::milliseconds(200) : std::chrono::milliseconds(aio::default_deadline);
    }

   private:
    std::optional<CallFault> fault_;
};

// Every member is called in a process of its own, at the same path `root`: an empty folder at first, later a copy of
// what prepare() left there.
class CallScene {
   public:
    virtual ~CallScene() = default;
    virtual std::string name() const = 0;
    virtual void prepare(const std::string& root) const = 0;
    // Throws Error when it was refused, by a message that says so. Returns what is wrong with what it reported as done:
    // nothing, if all is right.
    virtual std::string act(const std::string& root, const CallScope& scope) const = 0;
    // Nothing fails any more. What is wrong: something that was reported is lost, or what was refused cannot be done
    // now. Empty if all is right.
    virtual std::string check(const std::string& root, bool reported) const = 0;
    // A scene whose act() is refused also without a fault.
    virtual bool is_refused_anyhow() const { return false; }
};

using CallScenes = std::vector<std::unique_ptr<CallScene>>;
CallScenes all_scenes();

// The parts of all_scenes().
void add_store_scenes(CallScenes& scenes);     // created, opened, committed
void add_snapshot_scenes(CallScenes& scenes);  // copied, listed, removed, repaired
void add_c_scenes(CallScenes& scenes);         // through penstock.h; and the device's profile

}  // namespace penstock::testing
