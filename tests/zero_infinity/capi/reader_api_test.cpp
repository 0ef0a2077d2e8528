// A model is read out of a store and of a snapshot without a session.
#include "tests/zero_infinity/capi/session_caller.h"
#include "zero_infinity/capi/penstock_reader.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

class ReaderTest : public CallerTest {
   protected:
    struct Value {
        std::uint32_t unit, parameter;
        penstock_what what;
    };
    const std::vector<Value> values = {{0, 0, PENSTOCK_WEIGHT},  {0, 0, PENSTOCK_MASTER}, {0, 0, PENSTOCK_MOMENT0},
                                       {0, 0, PENSTOCK_MOMENT1}, {1, 0, PENSTOCK_MASTER}, {1, 2, PENSTOCK_MOMENT1},
                                       {2, 0, PENSTOCK_MOMENT0}};

    // One step, and a snapshot of it. What a session reads then.
    std::vector<std::vector<float>> train() const {
        SessionCaller caller(path());
        caller.options.snapshots = 1;
        EXPECT_OK(caller.open());
        caller.backward(2);
        EXPECT_OK(caller.update(1));
        EXPECT_OK(penstock_session_begin_snapshot(caller.session, kept().c_str(), &caller.error));
        EXPECT_OK(penstock_session_finish_snapshot(caller.session, &caller.error));
        std::vector<std::vector<float>> read;
        for (const Value& each : values) read.push_back(caller.read(each.unit, each.parameter, each.what));
        return read;
    }
    std::string kept() const { return path() + "-kept"; }
};

// Of a caller's model.
struct Reader {
    explicit Reader(SessionCaller& from) : caller(from) {
        status = penstock_reader_open(&caller.model, &caller.options, &reader, &caller.error);
    }
    ~Reader() { penstock_reader_close(reader, nullptr); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    SessionCaller& caller;
    penstock_reader* reader = nullptr;
    penstock_status status;
};

TEST_F(ReaderTest, ValuesAreThoseThatASessionReads) {
    const auto expected = train();
    for (const std::string& place : {path(), kept()}) {
        SessionCaller caller(place);
        Reader reader(caller), beside(caller);
        ASSERT_OK(reader.status);
        ASSERT_OK(beside.status);  // readers share
        for (std::size_t i = 0; i < values.size(); ++i) {
            std::vector<float> read(expected[i].size());
            EXPECT_OK(penstock_reader_read(reader.reader, values[i].unit, values[i].parameter, values[i].what,
                                           read.data(), 4 * read.size(), &caller.error));
            EXPECT_EQ(read, expected[i]) << place << " " << i;
        }
        std::vector<std::uint16_t> frozen(300);  // in bf16, as it is stored
        EXPECT_OK(penstock_reader_read(reader.reader, 1, 1, PENSTOCK_WEIGHT, frozen.data(), 2 * frozen.size(),
                                       &caller.error));
        EXPECT_EQ(std::bit_cast<float>(std::uint32_t{frozen[2]} << 16), (31 + 17 + 2) % 64 / 64.0F);
    }
}

TEST_F(ReaderTest, WhatCannotBeReadIsRefusedByName) {
    train();
    SessionCaller caller(path());
    const Reader reader(caller);
    const Refused refused{caller};
    float few[3];
    refused(penstock_reader_read(reader.reader, 7, 0, PENSTOCK_WEIGHT, few, sizeof few, &caller.error), "no unit 7");
    refused(penstock_reader_read(reader.reader, 0, 5, PENSTOCK_WEIGHT, few, sizeof few, &caller.error),
            "no parameter 5");
    refused(penstock_reader_read(reader.reader, 0, 0, PENSTOCK_WEIGHT, few, sizeof few, &caller.error), "12 bytes for");
    refused(penstock_reader_read(reader.reader, 1, 1, PENSTOCK_MOMENT0, few, sizeof few, &caller.error), "is frozen");
    refused(penstock_reader_read(reader.reader, 0, 0, static_cast<penstock_what>(9), few, sizeof few, &caller.error),
            "no penstock_what 9");
    refused(penstock_reader_read(reader.reader, 0, 0, PENSTOCK_WEIGHT, nullptr, sizeof few, &caller.error), "NULL");
    refused(penstock_reader_read(nullptr, 0, 0, PENSTOCK_WEIGHT, few, sizeof few, &caller.error), "reader");
}

TEST_F(ReaderTest, AStoreThatIsNotThisModelsIsRefused) {
    train();
    SessionCaller caller(path());
    caller.first[0].name = "other";
    const Reader reader(caller);
    Refused{caller}(reader.status, "another model, codec or optimizer");
    EXPECT_EQ(reader.reader, nullptr);
}

TEST_F(ReaderTest, AStoreInUseAndOneThatIsNotThereAreStorageErrors) {
    SessionCaller nothing(path());
    EXPECT_EQ(Reader(nothing).status, PENSTOCK_STORAGE);
    train();
    SessionCaller training(path());
    {
        SessionCaller caller(path());
        ASSERT_OK(training.open());
        EXPECT_EQ(Reader(caller).status, PENSTOCK_STORAGE);
        EXPECT_NE(std::string(caller.error.message).find("in use"), std::string::npos) << caller.error.message;
    }
    training.close();
    {
        SessionCaller caller(path());
        const Reader reader(caller);
        ASSERT_OK(reader.status);
        EXPECT_EQ(training.open(), PENSTOCK_STORAGE);  // while it is read
    }
    EXPECT_EQ(training.open(), PENSTOCK_OK) << training.error.message;
}

}  // namespace
}  // namespace penstock::testing
