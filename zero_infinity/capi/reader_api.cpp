// The functions of zero_infinity/capi/penstock_reader.h: arguments in, status out.
#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"
#include "zero_infinity/capi/c_model.h"
#include "zero_infinity/capi/parameter_value.h"
#include "zero_infinity/capi/penstock_reader.h"
#include "zero_infinity/session/model_reader.h"

#include <atomic>
#include <cstddef>
#include <span>

using penstock::store::Refusal;
using penstock::store::required;

struct penstock_reader {
    penstock::zero::ModelReader reader;
    std::atomic<bool> calling{false};
};

penstock_status penstock_reader_open(const penstock_model* model, const penstock_session_options* options,
                                     penstock_reader** reader, penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        penstock_reader*& place = required(reader, "reader");
        place = nullptr;
        const auto given = penstock::store::taken(options, penstock::zero::least_options_bytes, "options");
        place = new penstock_reader{{penstock::zero::model_of(model), penstock::zero::options_of(given)}};
        return PENSTOCK_OK;
    });
}

penstock_status penstock_reader_read(penstock_reader* reader, uint32_t unit, uint32_t parameter, penstock_what what,
                                     void* data, uint64_t bytes, penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        penstock_reader& own = required(reader, "reader");
        const auto value = penstock::zero::value_of(what);
        penstock::store::require(data != nullptr, "data is NULL");
        const std::span to(static_cast<std::byte*>(data), bytes);
        if (own.calling.exchange(true))
            throw Refusal(PENSTOCK_BUSY, "another thread is within a call on this reader: use it from one at a time");
        const struct Called {
            std::atomic<bool>& calling;
            ~Called() { calling.store(false); }
        } called{own.calling};
        penstock::zero::ToMemory sink(own.reader.layout(), {unit, parameter}, value, to);
        own.reader.read_out(sink.what(), sink);
        return PENSTOCK_OK;
    });
}

penstock_status penstock_reader_close(penstock_reader* reader, penstock_error* error) {
    return penstock::store::guarded(error, [&] {
        delete reader;
        return PENSTOCK_OK;
    });
}
