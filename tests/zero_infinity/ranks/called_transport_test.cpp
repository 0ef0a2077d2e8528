// A transport over the functions of a C program, which here are other transports'.
#include "zero_infinity/ranks/capi/transport_calls.h"

#include "swap/capi/c_error.h"
#include "tests/seeds.h"
#include "tests/zero_infinity/ranks/moved_blocks.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "zero_infinity/ranks/lane.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace penstock::testing {
namespace {

using Bytes = std::vector<std::byte>;

// A program of one rank: two channels of dense blocks.
struct Program {
    explicit Program(ThreadRanks& control, ThreadRanks& bulk, std::uint32_t rank)
        : channels{&control.of(rank), &bulk.of(rank)} {}

    penstock_ranks given() {
        return {sizeof(penstock_ranks),
                channels[0]->rank(),
                channels[0]->ranks(),
                "threads through C",
                20'000,
                all_gather,
                exchange,
                abort,
                this};
    }
    static Program& of(void* user) { return *static_cast<Program*>(user); }
    template <typename Call>
    static penstock_status status_of(penstock_error* error, Call call) {
        return store::guarded(error, [&] {
            call();
            return PENSTOCK_OK;
        });
    }
    static penstock_status all_gather(penstock_channel channel, const void* mine, void* all, uint64_t bytes, void* user,
                                      penstock_error* error) {
        return status_of(error, [&] {
            of(user).channels[channel]->all_gather({static_cast<const std::byte*>(mine), bytes},
                                                   {static_cast<std::byte*>(all), bytes, bytes});
        });
    }
    static penstock_status exchange(penstock_channel channel, const void* to, void* from, uint64_t bytes, void* user,
                                    penstock_error* error) {
        return status_of(error, [&] {
            of(user).channels[channel]->exchange({static_cast<const std::byte*>(to), bytes, bytes},
                                                 {static_cast<std::byte*>(from), bytes, bytes});
        });
    }
    static void abort(const char* cause, void* user) {
        of(user).cause = cause;
        for (zero::Transport* each : of(user).channels) each->abort(cause);
    }

    std::array<zero::Transport*, 2> channels;
    std::string cause;
};

TEST(CalledTransport, MovesBlocksWhateverLiesBetweenThem) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(60); ++seed) {
        SCOPED_TRACE(replay(seed));
        const auto ranks = static_cast<std::uint32_t>(1 + mix(seed) % 4);
        const std::size_t bytes = 1 + mix(seed + 1) % 50;
        ThreadRanks control(ranks), bulk(ranks);
        const auto thrown = run_ranks(ranks, [&](std::uint32_t rank) {
            Program program(control, bulk, rank);
            const penstock_ranks given = program.given();
            const zero::RankCalls calls(&given);
            zero::CalledTransport transport(calls, seed % 2 == 0 ? PENSTOCK_BULK : PENSTOCK_CONTROL);
            move_blocks(transport, seed, bytes);
        });
        ASSERT_EQ(thrown, std::vector<std::string>(ranks));
    }
}

TEST(CalledTransport, SaysWhatTheProgramSaid) {
    ThreadRanks control(2), bulk(2);
    Program program(control, bulk, 0);
    penstock_ranks given = program.given();
    given.all_gather = [](penstock_channel, const void*, void*, uint64_t, void*, penstock_error* error) {
        std::snprintf(error->message, sizeof error->message, "connection closed by worker-2");
        return PENSTOCK_STORAGE;
    };
    given.exchange = [](penstock_channel, const void*, void*, uint64_t, void*, penstock_error*) {
        return static_cast<penstock_status>(-1674150296);
    };
    const zero::RankCalls calls(&given);
    zero::CalledTransport transport(calls, PENSTOCK_BULK);
    Bytes mine(1), all(2);
    const auto said = [](const auto& call) -> std::string {
        try {
            call();
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::peer_lost);
            return error.what();
        }
        return "nothing";
    };
    EXPECT_EQ(said([&] { transport.all_gather(mine, {all.data(), 1, 1}); }), "connection closed by worker-2");
    EXPECT_EQ(said([&] {
                  transport.exchange({all.data(), 1, 1}, {all.data(), 1, 1});
              }),
              "threads through C has failed and says no more");
    transport.abort(std::string(2000, 'x'));
    EXPECT_EQ(program.cause.size(), 511U);
}

TEST(CalledTransport, WhatIsNotWholeIsRefusedByName) {
    ThreadRanks control(2), bulk(2);
    Program program(control, bulk, 1);
    const auto refusal = [&](auto change) -> std::string {
        penstock_ranks given = program.given();
        change(given);
        try {
            const zero::RankCalls calls(&given);
        } catch (const store::Refusal& refused) {
            return refused.what();
        }
        return "nothing";
    };
    EXPECT_EQ(refusal([](auto&) {}), "nothing");
    EXPECT_EQ(refusal([](auto& given) { given.rank = 2; }), "rank 2 of 2: ranks count from 0");
    EXPECT_EQ(refusal([](auto& given) { given.name = nullptr; }), "ranks.name is NULL");
    EXPECT_EQ(refusal([](auto& given) { given.deadline_ms = 0; }), "ranks.deadline_ms is 0: every wait has an end");
    EXPECT_EQ(refusal([](auto& given) { given.exchange = nullptr; }), "ranks.all_gather, exchange or abort is NULL");
    EXPECT_NE(refusal([](auto& given) { given.struct_bytes = 0; }).find("struct_bytes"), std::string::npos);
}

TEST(CalledTransport, IsProbedThroughC) {
    ThreadRanks control(3), bulk(3);
    const auto thrown = run_ranks(3, [&](std::uint32_t rank) {
        Program program(control, bulk, rank);
        const penstock_ranks given = program.given();
        penstock_rank_rates rates{sizeof rates, 0, 0, 0, 0};
        penstock_error error{};
        ASSERT_EQ(penstock_ranks_probe(&given, 1 << 16, &rates, &error), PENSTOCK_OK) << error.message;
        EXPECT_GT(rates.small_seconds, 0);
        EXPECT_GT(rates.gather_bytes_per_s, 0);
        EXPECT_GT(rates.exchange_bytes_per_s, 0);
        EXPECT_GT(rates.sum_bytes_per_s, 0);
        EXPECT_EQ(penstock_ranks_probe(&given, 6, &rates, &error), PENSTOCK_USAGE);
        EXPECT_EQ(penstock_ranks_probe(nullptr, 8, &rates, &error), PENSTOCK_USAGE);
        EXPECT_EQ(penstock_ranks_probe(&given, 8, nullptr, &error), PENSTOCK_USAGE);
    });
    EXPECT_EQ(thrown, std::vector<std::string>(3));
}

}  // namespace
}  // namespace penstock::testing
