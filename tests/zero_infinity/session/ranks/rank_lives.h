// Lives of all ranks of a run, each on a thread of this process.
#pragma once

#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "tests/zero_infinity/session/ranks/ranked_loop.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock::testing {

// One life of all ranks; `each` is called on each rank's thread at its end.
using AtEnd = std::function<void(Client& client, std::uint32_t rank)>;
inline std::vector<std::string> train(const std::string& path, const RankCourse& course, std::uint64_t first,
                                      std::uint64_t last, const AtEnd& at_end, const BehindPass& behind_pass = {}) {
    ThreadRanks control(course.ranks), bulk(course.ranks);
    return run_ranks(course.ranks, [&](std::uint32_t rank) {
        Client client(path, course.setting, {.ranks = {&control.of(rank), &bulk.of(rank)}});
        train_rank(client, course, first, last, rank, behind_pass);
        at_end(client, rank);
    });
}

// What each rank throws: words of errors, nothing where it ended well.
inline const std::vector<std::string> nothing(2);

class RankSetTest : public ComputeTest {
   protected:
    std::string run() const { return parent_ / "swap"; }
    std::string store_of(std::uint32_t rank) const { return fmt::format("{}/ranks-2/{}", run(), rank); }
    std::vector<std::string> live(std::uint64_t first, std::uint64_t last, const AtEnd& at_end = {}) const {
        return train(run(), course_, first, last, [&](Client& client, std::uint32_t rank) {
            if (at_end) at_end(client, rank);
        });
    }
    // The sessions hold what the loop holds after so many steps.
    AtEnd holds_after(std::uint64_t steps) {
        RankCourse course = course_;
        course.steps = steps;
        loop_ = std::make_unique<RankedLoop>(plain(course));
        return [this](Client& client, std::uint32_t rank) {
            EXPECT_TRUE(client.state() == loop_->parameters()) << "rank " << rank;
        };
    }
    void keep(std::uint32_t rank, const std::string& as) const {
        std::filesystem::copy(store_of(rank), parent_ / as, std::filesystem::copy_options::recursive);
    }
    void put_back(std::uint32_t rank, const std::string& from) const {
        std::filesystem::remove_all(store_of(rank));
        std::filesystem::rename(parent_ / from, store_of(rank));
    }

    RankCourse course_;

   private:
    const TemporaryDirectory parent_;
    std::unique_ptr<RankedLoop> loop_;
};

}  // namespace penstock::testing
