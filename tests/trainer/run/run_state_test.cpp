#include "trainer/run/run_state.h"
#include "aio/words/error.h"

#include <gtest/gtest.h>

namespace penstock::trainer {
namespace {

TEST(RunState, ComesBackBitForBit) {
    const RunState state{
        .step = 12345678901, .rows = 7, .data_hash = "abc", .first_loss = 0.1 + 0.2, .last_loss = 1.0 / 3};
    store::ClientState client{{"config.model.hidden", "8"}};
    write_state(state, client);
    EXPECT_EQ(client.at("config.model.hidden"), "8");
    const RunState back = read_state(client);
    EXPECT_EQ(back.step, state.step);
    EXPECT_EQ(back.rows, state.rows);
    EXPECT_EQ(back.data_hash, state.data_hash);
    EXPECT_EQ(back.first_loss, state.first_loss);
    EXPECT_EQ(back.last_loss, state.last_loss);
}

TEST(RunState, MayLackLosses) {
    store::ClientState client;
    write_state({.step = 1, .rows = 1, .data_hash = "h", .first_loss = {}, .last_loss = {}}, client);
    EXPECT_FALSE(read_state(client).first_loss);
}

TEST(RunState, OfAnotherWriterIsRefused) {
    EXPECT_THROW(read_state({}), Error);
    EXPECT_THROW(read_state({{"step", "3"}}), Error);
    store::ClientState client;
    write_state({.step = 1, .rows = 1, .data_hash = "h", .first_loss = {}, .last_loss = {}}, client);
    client["trainer.format"] = "2";
    EXPECT_THROW(read_state(client), Error);
    client["trainer.format"] = "1";
    client["step"] = "3x";
    EXPECT_THROW(read_state(client), Error);
}

TEST(RunState, OfNoRunIsRefused) {
    store::ClientState sound;
    write_state({.step = 1, .rows = 1, .data_hash = "h", .first_loss = {}, .last_loss = {}}, sound);
    EXPECT_NO_THROW(read_state(sound));
    for (const char* key : {"step", "data.rows"}) {
        for (const char* value : {"-5", "9223372036854775807", "", "1e3"}) {
            store::ClientState client = sound;
            client[key] = value;
            EXPECT_THROW(read_state(client), Error) << key << " " << value;
        }
    }
}

}  // namespace
}  // namespace penstock::trainer
