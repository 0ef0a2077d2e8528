#include "tests/swap/store/histories.h"

#include "aio/words/check.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/swap/kills/kill_process.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

namespace penstock::testing {
namespace {

// The two places of one manifest file.
class Places {
   public:
    explicit Places(std::string path) : path_(std::move(path)), bytes_(std::filesystem::file_size(path_) / 2) {}

    std::string read(std::uint64_t copy) const {
        std::string text(bytes_, '\0');
        std::ifstream file(path_, std::ios::binary);
        file.seekg(static_cast<std::streamoff>(copy * bytes_));
        file.read(text.data(), static_cast<std::streamsize>(text.size()));
        PENSTOCK_CHECK(file.good(), "{} cannot be read", path_);
        return text;
    }
    void write(std::uint64_t copy, const std::string& text) const {
        std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(copy * bytes_));
        file.write(text.data(), static_cast<std::streamsize>(text.size()));
        PENSTOCK_CHECK(file.good(), "{} cannot be written", path_);
    }

   private:
    std::string path_;
    std::uint64_t bytes_;
};

std::string unreadable(std::string text) {
    text[24] = static_cast<char>(text[24] ^ 0x40);  // in its hash
    return text;
}

class Run {
   public:
    explicit Run(std::uint64_t seed)
        : random_(draw(seed, 2)), plan_(draw_plan(seed)), model_(store::Layout(plan_.objects, {}).tile_count()) {
        for (std::size_t i = 0; i < plan_.directory_count; ++i)
            paths_.push_back(scratch_.file(fmt::format("store{}", i)));
    }

    std::string operator()(DriveFault fault) {
        commit(1 + random_() % 4);
        const Image common = model_.acknowledged();
        commit(1);
        const Places places(fmt::format("{}/manifest.{}", paths_.front(), *model_.acknowledged().generation % 2));
        std::array<std::string, 2> first;
        for (std::uint64_t copy = 0; copy < 2; ++copy) {
            first[copy] = places.read(copy);
            places.write(copy, unreadable(first[copy]));
        }
        model_.resume_with(common);
        if (!complaint_.empty()) return complaint_;
        if (fault == DriveFault::stuck) {
            commit(1);
            const std::uint64_t copy = random_() % 2;
            places.write(copy, first[copy]);
        } else {
            live({.point = KillPoint{.of = KillPoint::Of::commits, .nth = 1 + random_() % 8}});
            for (std::uint64_t copy = 0; copy < 2; ++copy) {
                if (places.read(copy) == unreadable(first[copy])) places.write(copy, first[copy]);
            }
        }
        return complaint_.empty() ? look(paths_, plan_, model_).complaint : complaint_;
    }

   private:
    void commit(std::uint64_t commits) { live({.point = {}, .after = {}, .commits = commits}); }
    void live(const KillOrder& order) {
        const KilledLife life = run_life(paths_, plan_, model_, lives_++, order);
        for (const Told& message : life.messages) model_.told(message);
        if (complaint_.empty()) complaint_ = life.complaint;
    }

    std::mt19937_64 random_;
    KillPlan plan_;
    KillModel model_;
    TemporaryDirectory scratch_{aio::quick_temporary_path()};
    std::vector<std::string> paths_;
    std::uint64_t lives_ = 0;
    std::string complaint_;
};

}  // namespace

std::vector<std::string> run_histories(DriveFault fault, std::uint64_t seed) {
    const std::string wrong = Run(seed)(fault);
    return wrong.empty() ? std::vector<std::string>{} : std::vector{wrong};
}

}  // namespace penstock::testing
