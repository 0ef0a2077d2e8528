// Each run finds the tensor that the last one committed, adds one to every number and commits it again. A run that is
// killed changes nothing. tensors DIRECTORY prints "run 1"; run again, "run 2".
#include <penstock.h>
#include <stdio.h>
#include <stdlib.h>

enum { bytes = 16 << 20, tile_bytes = 4 << 20 };
static penstock_error error;

static void check(penstock_status status, const char* message) {
    if (status == PENSTOCK_OK) return;
    fprintf(stderr, "%s: %s\n", penstock_status_name(status), message);
    exit(status);
}

// An operation has begun, or was refused; its end is a result. A program with more to do takes it later.
static void finish(penstock_store* store, penstock_status begun) {
    penstock_result result = {.struct_bytes = sizeof result};
    check(begun, error.message);
    check(penstock_next(store, -1, &result, &error), error.message);
    check(result.status, result.message);
}

int main(int argc, char** argv) {
    const char* directories[] = {argc > 1 ? argv[1] : "example-store"};
    const penstock_object objects[] = {{"weights", bytes, tile_bytes}};
    const penstock_store_options options = {.struct_bytes = sizeof options,
                                            .directories = directories,
                                            .directory_count = 1,
                                            .job = "example",
                                            .objects = objects,
                                            .object_count = 1,
                                            .object_struct_bytes = sizeof objects[0]};
    const penstock_range weights = {.object = 0};  // all of its tiles
    penstock_store* store;
    penstock_pool* pool;
    penstock_lease* lease;
    check(penstock_store_open(&options, &store, &error), error.message);
    check(penstock_pool_create(bytes, &pool, &error), error.message);
    check(penstock_lease_acquire(pool, bytes, &lease, &error), error.message);
    for (size_t i = 0; penstock_note(store, i) != NULL; ++i) fprintf(stderr, "%s\n", penstock_note(store, i));

    const penstock_memory memory = penstock_lease_memory(lease);
    int* numbers = memory.data;
    for (int i = 0; i < bytes / (int)sizeof(int); ++i) numbers[i] = 0;
    if (penstock_written(store, weights, NULL) == PENSTOCK_OK)
        finish(store, penstock_read(store, weights, memory, PENSTOCK_URGENCY_DEFAULT, NULL, &error));
    for (int i = 0; i < bytes / (int)sizeof(int); ++i) ++numbers[i];
    finish(store, penstock_write(store, weights, memory, PENSTOCK_URGENCY_DEFAULT, NULL, &error));
    finish(store, penstock_commit(store, NULL, &error));  // from here on a crash finds these numbers
    printf("run %d\n", numbers[bytes / sizeof(int) - 1]);

    penstock_lease_release(lease);
    check(penstock_store_close(store, &error), error.message);
    check(penstock_pool_destroy(pool, &error), error.message);
    return 0;
}
