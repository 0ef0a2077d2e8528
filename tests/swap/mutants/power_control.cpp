// Cuts the power of the store that this program was linked with, at random writes and flushes. Arguments: what must be
// found of it; then "in-order" where the device carries out what is in flight as it was submitted. A kill shows nothing
// of flushes: the kernel keeps what a dead process wrote.
#include "tests/aio/fakes/scratch.h"

#include "aio/words/error.h"
#include "tests/control.h"
#include "tests/swap/kills/kill_life.h"
#include "tests/swap/power/power_device.h"

#include <fmt/format.h>

#include <deque>

namespace penstock::testing {
namespace {

class ModelListener final : public KillListener {
   public:
    explicit ModelListener(KillModel& model) : model_(model) {}
    void hear(std::span<const Told> messages) override {
        for (const Told& message : messages) model_.told(message);
    }

   private:
    KillModel& model_;
};

class Machine {
   public:
    Machine(std::uint64_t seed, InFlight order)
        : seed_(seed),
          random_(draw(seed, 3)),
          device_(seed, order),
          plan_(draw_plan(seed)),
          model_(store::Layout(plan_.objects, {}).tile_count()) {
        for (std::size_t i = 0; i < plan_.directory_count; ++i) {
            owned_.emplace_back(scratch_.file(fmt::format("store{}", i)), "power");
            directories_.push_back(&owned_.back());
        }
    }

    std::string operator()() {
        for (std::uint64_t life = 0; life < 12; ++life) {
            // From the first commits to the middle of the steps; of the first life, one seed after the other, at each.
            device_.die_after(1 + (life == 0 ? seed_ : random_()) % 120);
            if (std::string wrong = live(life); !wrong.empty()) return fmt::format("life {}: {}", life, wrong);
            device_.cut(static_cast<Loss>(random_() % 3));
            if (std::string wrong = compare(); !wrong.empty()) return fmt::format("after life {}: {}", life, wrong);
        }
        return {};
    }

   private:
    std::string live(std::uint64_t life) {
        ModelListener listener(model_);
        aio::Io io(device_.backend(), {});
        std::string wrong;
        try {
            wrong = KillLife(plan_, model_, life, listener).run(io, directories_, 5);
        } catch (const Error& error) {
            wrong = error.what();
        }
        return device_.dead() ? "" : wrong;
    }
    std::string compare() {
        aio::Io io(device_.backend(), {});
        Found found = examine(io, directories_, plan_, model_);
        if (found.complaint.empty()) model_.resume_with(std::move(found.image));
        found.store.reset();
        return found.complaint;
    }

    std::uint64_t seed_;
    std::mt19937_64 random_;
    PowerDevice device_;
    KillPlan plan_;
    KillModel model_;
    TemporaryDirectory scratch_{aio::quick_temporary_path()};
    std::deque<store::StoreDirectory> owned_;
    std::vector<store::StoreDirectory*> directories_;
};

}  // namespace
}  // namespace penstock::testing

int main(int argc, char** argv) {
    using namespace penstock::testing;
    const auto order = argc > 2 && argv[2] == std::string("in-order") ? InFlight::as_submitted : InFlight::reordered;
    return penstock::find_mutant(argc > 1 ? argv[1] : "", argc > 1 ? 60 : 6, [order](std::uint64_t seed) {
        const std::string wrong = penstock::testing::Machine(seed, order)();
        return wrong.empty() ? std::vector<std::string>{} : std::vector{wrong};
    });
}
