// Leaves a store of three generations, and of one more tile that was never committed. `c_store FIRST SECOND`: its two
// directories.
#include <penstock.h>
#include <stdio.h>
#include <stdlib.h>

#include "pattern.h"

enum { memory_bytes = 128 << 10, alignment = 4096, tile_bytes = 16384 };
static penstock_store* store;
static penstock_error error;

static void check(penstock_status status, const char* message) {
    if (status == PENSTOCK_OK) return;
    fprintf(stderr, "%s: %s\n", penstock_status_name(status), message);
    exit(status);
}

static void finish(penstock_status begun) {
    penstock_result result;
    check(begun, error.message);
    check(penstock_next(store, -1, &result, &error), error.message);
    check(result.status, result.message);
}

static void write_range(penstock_range range, unsigned seed) {
    static unsigned char room[memory_bytes + alignment];
    unsigned char* data = room + (alignment - (size_t)room % alignment) % alignment;
    const penstock_memory memory = {data, memory_bytes, NULL};
    fill_pattern(data, memory_bytes, (size_t)range.first_tile * tile_bytes, seed);
    finish(penstock_write(store, range, memory, PENSTOCK_URGENCY_DEFAULT, NULL, &error));
}

static void commit(const char* step) {
    check(penstock_client_set(store, "step", step, 1, &error), error.message);
    finish(penstock_commit(store, NULL, &error));
}

int main(int argc, char** argv) {
    const char* directories[] = {argc > 1 ? argv[1] : "first", argc > 2 ? argv[2] : "second"};
    const double bandwidths[] = {2, 1};
    const penstock_object objects[] = {{"weights", 100000, tile_bytes}, {"states", 5000, 0}};
    const penstock_range weights = {0, 0, 0}, middle = {0, 2, 3}, first = {0, 0, 1}, states = {1, 0, 0};
    const penstock_store_options options = {.struct_bytes = sizeof options,
                                            .directories = directories,
                                            .directory_count = 2,
                                            .bandwidths = bandwidths,
                                            .job = "earlier",
                                            .mode = PENSTOCK_CREATE,
                                            .objects = objects,
                                            .object_count = 2};
    check(penstock_store_open(&options, &store, &error), error.message);
    write_range(weights, 1);
    write_range(states, 2);
    check(penstock_client_set(store, "position", "\0\1\2", 3, &error), error.message);
    check(penstock_client_set(store, "of the first", "", 0, &error), error.message);
    commit("1");
    write_range(middle, 3);
    check(penstock_client_set(store, "of the first", NULL, 0, &error), error.message);
    commit("2");
    write_range(states, 4);
    commit("3");
    write_range(first, 9);
    return 0;  // not closed: as after a kill
}
