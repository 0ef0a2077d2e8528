// The C ABI as text: a line for each function with its type as compilers mangle it, for each structure with its bytes
// and its alignment, for each member with its offset and its bytes, for each enumerator with its value.
// REQUIRES: penstock.h is included before; so this can also tell of the header of an earlier commit.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <typeinfo>
#include <vector>

namespace penstock::testing {

using AbiLines = std::vector<std::string>;

inline std::string abi_line(std::string line, std::initializer_list<std::size_t> numbers) {
    for (const std::size_t number : numbers) line += " " + std::to_string(number);
    return line;
}

#define FUNCTION(symbol) std::string("function " #symbol " ") + typeid(decltype(symbol)).name()
#define STRUCTURE(type) abi_line("structure " #type, {sizeof(type), alignof(type)})
#define MEMBER(type, name) abi_line("member " #type "." #name, {offsetof(type, name), sizeof(type::name)})
#define VALUE(name) abi_line("value " #name, {name})

inline AbiLines abi_functions() {
    return {FUNCTION(penstock_abi_version),  FUNCTION(penstock_version),       FUNCTION(penstock_status_name),
            FUNCTION(penstock_store_open),   FUNCTION(penstock_store_close),   FUNCTION(penstock_note),
            FUNCTION(penstock_backend_name), FUNCTION(penstock_object_count),  FUNCTION(penstock_object_at),
            FUNCTION(penstock_find),         FUNCTION(penstock_generation),    FUNCTION(penstock_client_get),
            FUNCTION(penstock_client_set),   FUNCTION(penstock_pool_create),   FUNCTION(penstock_pool_destroy),
            FUNCTION(penstock_pool_note),    FUNCTION(penstock_lease_acquire), FUNCTION(penstock_lease_release),
            FUNCTION(penstock_lease_memory), FUNCTION(penstock_alignment),     FUNCTION(penstock_range_bytes),
            FUNCTION(penstock_written),      FUNCTION(penstock_read),          FUNCTION(penstock_write),
            FUNCTION(penstock_commit),       FUNCTION(penstock_next),          FUNCTION(penstock_event_fd)};
}

inline AbiLines abi_structures() {
    return {STRUCTURE(penstock_error),
            MEMBER(penstock_error, status),
            MEMBER(penstock_error, message),
            STRUCTURE(penstock_object),
            MEMBER(penstock_object, name),
            MEMBER(penstock_object, bytes),
            MEMBER(penstock_object, tile_bytes),
            STRUCTURE(penstock_store_options),
            MEMBER(penstock_store_options, struct_bytes),
            MEMBER(penstock_store_options, directories),
            MEMBER(penstock_store_options, directory_count),
            MEMBER(penstock_store_options, bandwidths),
            MEMBER(penstock_store_options, job),
            MEMBER(penstock_store_options, mode),
            MEMBER(penstock_store_options, durability),
            MEMBER(penstock_store_options, verify),
            MEMBER(penstock_store_options, objects),
            MEMBER(penstock_store_options, object_count),
            MEMBER(penstock_store_options, object_struct_bytes),
            MEMBER(penstock_store_options, backend),
            MEMBER(penstock_store_options, caching),
            MEMBER(penstock_store_options, deadline_ms),
            MEMBER(penstock_store_options, progress),
            MEMBER(penstock_store_options, progress_user),
            STRUCTURE(penstock_object_info),
            MEMBER(penstock_object_info, struct_bytes),
            MEMBER(penstock_object_info, name),
            MEMBER(penstock_object_info, object),
            MEMBER(penstock_object_info, tile_count),
            MEMBER(penstock_object_info, bytes),
            MEMBER(penstock_object_info, tile_bytes),
            MEMBER(penstock_object_info, memory_bytes),
            STRUCTURE(penstock_memory),
            MEMBER(penstock_memory, data),
            MEMBER(penstock_memory, bytes),
            MEMBER(penstock_memory, lease),
            STRUCTURE(penstock_range),
            MEMBER(penstock_range, object),
            MEMBER(penstock_range, first_tile),
            MEMBER(penstock_range, tile_count),
            STRUCTURE(penstock_result),
            MEMBER(penstock_result, struct_bytes),
            MEMBER(penstock_result, kind),
            MEMBER(penstock_result, status),
            MEMBER(penstock_result, user),
            MEMBER(penstock_result, message),
            MEMBER(penstock_result, memory_lost)};
}

inline AbiLines abi_values() {
    return {VALUE(PENSTOCK_ABI_VERSION),    VALUE(PENSTOCK_OK),
            VALUE(PENSTOCK_INTERNAL),       VALUE(PENSTOCK_USAGE),
            VALUE(PENSTOCK_DOES_NOT_FIT),   VALUE(PENSTOCK_STORAGE),
            VALUE(PENSTOCK_OUT_OF_MEMORY),  VALUE(PENSTOCK_DAMAGED),
            VALUE(PENSTOCK_POISONED),       VALUE(PENSTOCK_BUSY),
            VALUE(PENSTOCK_NOT_FOUND),      VALUE(PENSTOCK_TIMEOUT),
            VALUE(PENSTOCK_IDLE),           VALUE(PENSTOCK_OPEN_OR_CREATE),
            VALUE(PENSTOCK_OPEN),           VALUE(PENSTOCK_CREATE),
            VALUE(PENSTOCK_BACKEND_BEST),   VALUE(PENSTOCK_BACKEND_IO_URING),
            VALUE(PENSTOCK_BACKEND_LIBAIO), VALUE(PENSTOCK_BACKEND_THREADS),
            VALUE(PENSTOCK_DIRECT),         VALUE(PENSTOCK_PAGE_CACHE),
            VALUE(PENSTOCK_DURABLE),        VALUE(PENSTOCK_SCRATCH),
            VALUE(PENSTOCK_VERIFY_NONE),    VALUE(PENSTOCK_VERIFY_SAMPLE),
            VALUE(PENSTOCK_VERIFY_ALL),     VALUE(PENSTOCK_URGENCY_DEFAULT),
            VALUE(PENSTOCK_DEMAND),         VALUE(PENSTOCK_PREFETCH),
            VALUE(PENSTOCK_WRITE_BACK),     VALUE(PENSTOCK_SCRUB),
            VALUE(PENSTOCK_READ),           VALUE(PENSTOCK_WRITE),
            VALUE(PENSTOCK_COMMIT)};
}

#undef FUNCTION
#undef STRUCTURE
#undef MEMBER
#undef VALUE

inline std::string abi_text() {
    std::string text;
    for (const AbiLines& lines : {abi_functions(), abi_structures(), abi_values()})
        for (const std::string& line : lines) text += line + "\n";
    return text;
}

}  // namespace penstock::testing
