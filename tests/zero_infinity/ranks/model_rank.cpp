#include "tests/zero_infinity/ranks/model_rank.h"

#include <algorithm>

namespace penstock::testing {

Look look_at(const Rank& rank) {
    Look look;
    for (const auto& file : rank.manifests)
        for (const Copy& copy : file)
            if (copy.of.count > 0 && (!look.newest || copy.recency() > look.newest->recency())) look.newest = copy;
    if (!look.newest) return look;
    for (const auto& file : rank.manifests)
        for (const Copy& copy : file)
            if (copy.of.count > 0 && copy.of.count + 1 == look.newest->of.count &&
                copy.of.incarnation <= look.newest->of.incarnation &&
                (!look.previous || copy.recency() > look.previous->recency()))
                look.previous = copy;
    const auto& before = rank.manifests[look.newest->of.count % 2];  // where the generation before lies
    look.doubtful = look.newest->of.count > 1 && std::none_of(before.begin(), before.end(), [&](const Copy& copy) {
                        return copy.of.count + 1 == look.newest->of.count;
                    });
    return look;
}

bool is_intact(const Rank& rank, const Copy& copy) {
    return rank.slots[copy.slot] == copy.of;
}

zero::FoundTiles read_tiles(const Rank& rank, const Copy& copy) {
    return is_intact(rank, copy) ? zero::FoundTiles::right : zero::FoundTiles::damaged;
}

std::size_t other_slot(const Rank& rank) {
    const Look look = look_at(rank);
    return look.newest ? 1 - look.newest->slot : 0;
}

void recover(Rank& rank) {
    if (rank.step == zero::RecoveryStep::make) {
        rank.manifests = {};
        rank.slots = {};
        rank.stage = Stage::torn;
        return;
    }
    if (rank.step == zero::RecoveryStep::go_back) {
        const Byte newest = look_at(rank).newest->of.count;
        for (auto& file : rank.manifests)
            for (Copy& copy : file)
                if (copy.of.count == newest) copy = {};
    }
    rank.mine = ++rank.next;
    rank.stage = Stage::asking;
}

}  // namespace penstock::testing
