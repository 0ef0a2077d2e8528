// The functions of swap/capi/penstock.h on stores: arguments in, status out. What they mean is in c_store.h.
#include "aio/words/byte_count.h"
#include "swap/capi/c_error.h"
#include "swap/capi/c_range.h"
#include "swap/capi/c_store.h"
#include "swap/capi/c_struct.h"
#include "swap/capi/penstock.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

using penstock::store::guarded;
using penstock::store::Refusal;
using penstock::store::require;
using penstock::store::required;

namespace {

const penstock::store::CStore& opened(const penstock_store* store) {
    return required(store, "store").store;
}

penstock::store::CStore& opened(penstock_store* store) {
    return required(store, "store").store;
}

// What a program cannot be without.
constexpr std::size_t least_info_bytes = offsetof(penstock_object_info, tile_bytes);
constexpr std::size_t least_result_bytes =
    offsetof(penstock_result, memory_lost) + sizeof(penstock_result::memory_lost);

// The caller's, to be filled.
template <typename Struct>
Struct& place_of(Struct* given, std::size_t least_bytes, const char* name) {
    penstock::store::checked_struct(given, least_bytes, name);
    return *given;
}

void describe(const penstock::store::TensorStore& store, std::uint32_t object, penstock_object_info& info) {
    const penstock::store::ObjectSpec& spec = store.layout().objects()[object];
    const std::uint64_t granule = store.granule_bytes();
    const penstock_object_info filled = {.struct_bytes = sizeof filled,
                                         .name = spec.name.c_str(),
                                         .object = object,
                                         .tile_count = store.layout().tile_count(object),
                                         .bytes = spec.bytes,
                                         .tile_bytes = spec.tile_bytes,
                                         .memory_bytes = penstock::round_up(spec.bytes, granule)};
    penstock::store::put(filled, info);
}

}  // namespace

uint32_t penstock_abi_version(void) {
    return PENSTOCK_ABI_VERSION;
}

const char* penstock_version(void) {
    return PENSTOCK_VERSION;
}

const char* penstock_status_name(penstock_status status) {
    switch (penstock::store::number_of(status)) {
        case PENSTOCK_OK:
            return "PENSTOCK_OK";
        case PENSTOCK_INTERNAL:
            return "PENSTOCK_INTERNAL";
        case PENSTOCK_USAGE:
            return "PENSTOCK_USAGE";
        case PENSTOCK_DOES_NOT_FIT:
            return "PENSTOCK_DOES_NOT_FIT";
        case PENSTOCK_STORAGE:
            return "PENSTOCK_STORAGE";
        case PENSTOCK_OUT_OF_MEMORY:
            return "PENSTOCK_OUT_OF_MEMORY";
        case PENSTOCK_NON_FINITE:
            return "PENSTOCK_NON_FINITE";
        case PENSTOCK_PEER_LOST:
            return "PENSTOCK_PEER_LOST";
        case PENSTOCK_DAMAGED:
            return "PENSTOCK_DAMAGED";
        case PENSTOCK_POISONED:
            return "PENSTOCK_POISONED";
        case PENSTOCK_BUSY:
            return "PENSTOCK_BUSY";
        case PENSTOCK_NOT_FOUND:
            return "PENSTOCK_NOT_FOUND";
        case PENSTOCK_TIMEOUT:
            return "PENSTOCK_TIMEOUT";
        case PENSTOCK_IDLE:
            return "PENSTOCK_IDLE";
    }
    return "not a penstock_status";
}

// ---------------------------------------------------------------- open and close

penstock_status penstock_store_open(const penstock_store_options* options, penstock_store** store,
                                    penstock_error* error) {
    return guarded(error, [&] {
        penstock_store*& place = required(store, "store");
        place = nullptr;
        place = std::make_unique<penstock_store>(penstock::store::open_store(options)).release();
        return PENSTOCK_OK;
    });
}

penstock_status penstock_store_close(penstock_store* store, penstock_error* error) {
    return guarded(error, [&] {
        if (store == nullptr) return PENSTOCK_OK;
        store->store.require_closable();
        if (!store->store.lost()) delete store;
        return PENSTOCK_OK;
    });
}

const char* penstock_note(const penstock_store* store, size_t index) {
    return store == nullptr ? nullptr : store->store.note(index);
}

const char* penstock_backend_name(const penstock_store* store) {
    return store == nullptr ? nullptr : store->store.backend_name();
}

// ---------------------------------------------------------------- what it holds

uint32_t penstock_object_count(const penstock_store* store) {
    return store == nullptr ? 0 : static_cast<uint32_t>(store->store.store().layout().objects().size());
}

penstock_status penstock_object_at(const penstock_store* store, uint32_t object, penstock_object_info* info,
                                   penstock_error* error) {
    return guarded(error, [&] {
        const penstock::store::TensorStore& objects = opened(store).store();
        const std::size_t count = objects.layout().objects().size();
        require(object < count, "there is no object {}: the store has {}", object, count);
        describe(objects, object, place_of(info, least_info_bytes, "info"));
        return PENSTOCK_OK;
    });
}

penstock_status penstock_find(const penstock_store* store, const char* name, penstock_object_info* info,
                              penstock_error* error) {
    return guarded(error, [&] {
        const penstock::store::TensorStore& objects = opened(store).store();
        penstock_object_info& place = place_of(info, least_info_bytes, "info");
        const std::optional<std::uint32_t> object = objects.find(&required(name, "name"));
        if (!object) throw Refusal(PENSTOCK_NOT_FOUND, fmt::format("the store has no object '{}'", name));
        describe(objects, *object, place);
        return PENSTOCK_OK;
    });
}

penstock_status penstock_generation(const penstock_store* store, uint64_t* generation, penstock_error* error) {
    return guarded(error, [&] {
        const std::optional<std::uint64_t> newest = opened(store).store().generation();
        uint64_t& place = required(generation, "generation");
        if (!newest) throw Refusal(PENSTOCK_NOT_FOUND, "nothing was committed yet");
        place = *newest;
        return PENSTOCK_OK;
    });
}

penstock_status penstock_client_get(const penstock_store* store, const char* key, const void** value, size_t* bytes,
                                    penstock_error* error) {
    return guarded(error, [&] {
        const penstock::store::ClientState& client = opened(store).store().client();
        const void*& value_place = required(value, "value");
        size_t& bytes_place = required(bytes, "bytes");
        const auto found = client.find(&required(key, "key"));
        if (found == client.end()) throw Refusal(PENSTOCK_NOT_FOUND, fmt::format("there is no key '{}'", key));
        value_place = found->second.data();
        bytes_place = found->second.size();
        return PENSTOCK_OK;
    });
}

penstock_status penstock_client_set(penstock_store* store, const char* key, const void* value, size_t bytes,
                                    penstock_error* error) {
    return guarded(error, [&] {
        opened(store).set_client(&required(key, "key"), value, bytes);
        return PENSTOCK_OK;
    });
}

// ---------------------------------------------------------------- operations

uint64_t penstock_alignment(const penstock_store* store) {
    return store == nullptr ? 0 : store->store.store().granule_bytes();
}

penstock_status penstock_range_bytes(const penstock_store* store, penstock_range range, uint64_t* memory_bytes,
                                     penstock_error* error) {
    return guarded(error, [&] {
        const penstock::store::Layout& layout = opened(store).store().layout();
        uint64_t& place = required(memory_bytes, "memory_bytes");
        place = penstock::store::memory_bytes(layout, penstock::store::tiles_of(layout, range));
        return PENSTOCK_OK;
    });
}

penstock_status penstock_written(const penstock_store* store, penstock_range range, penstock_error* error) {
    return guarded(error, [&] {
        opened(store).require_written(range, PENSTOCK_NOT_FOUND);
        return PENSTOCK_OK;
    });
}

penstock_status penstock_read(penstock_store* store, penstock_range range, penstock_memory memory,
                              penstock_urgency urgency, void* user, penstock_error* error) {
    return guarded(error, [&] {
        opened(store).start_range(PENSTOCK_READ, range, memory, penstock::store::number_of(urgency), user);
        return PENSTOCK_OK;
    });
}

penstock_status penstock_write(penstock_store* store, penstock_range range, penstock_memory memory,
                               penstock_urgency urgency, void* user, penstock_error* error) {
    return guarded(error, [&] {
        opened(store).start_range(PENSTOCK_WRITE, range, memory, penstock::store::number_of(urgency), user);
        return PENSTOCK_OK;
    });
}

penstock_status penstock_commit(penstock_store* store, void* user, penstock_error* error) {
    return guarded(error, [&] {
        opened(store).start_commit(user);
        return PENSTOCK_OK;
    });
}

penstock_status penstock_next(penstock_store* store, int64_t timeout_ms, penstock_result* result,
                              penstock_error* error) {
    return guarded(error, [&] {
        penstock::store::CStore& asked = opened(store);
        return asked.next(timeout_ms, place_of(result, least_result_bytes, "result"));
    });
}

int penstock_event_fd(const penstock_store* store) {
    return store == nullptr ? -1 : store->store.event_fd();
}
