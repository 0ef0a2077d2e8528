// How Penstock reads a configuration that was written for DeepSpeed, for programs that bring their own model (the
// Python package does): one JSON text in, one out, in which every key has its value. Nothing is opened, read or kept.
//
//   penstock_config_text given = {.struct_bytes = sizeof given, .json = text, .name = "ds.json"};
//   penstock_config* config;
//   penstock_status status = penstock_config_resolve(&given, &config, &error);
//   puts(penstock_config_json(config));                        // also where the status is PENSTOCK_USAGE: "wrong"
//   penstock_config_free(config);
//
// What comes out:
//   {"name": "ds.json",
//    "values": {"train_batch_size": 8, "optimizer.type": "AdamW", "fp16.enabled": false, ...},   null: nobody says it
//    "obeyed": [{"key", "value", "from", "what"}],    from: "file", "caller" (it knew what was "auto"),
//                                                "auto" (by its rule), "other keys", "default"
//    "translated": [{"key", "value", "became", "because"}],
//    "without_effect": [{"key", "because"}],
//    "auto": [{"key", "became", "rule"}],        each "auto" of the text; became null: nobody knows it
//    "missing": ["optimizer.params.lr", ...],    of these what decides numbers, to be asked for before a training
//    "wrong": ["key 'optimzer' is unknown; the nearest known one is 'optimizer'", ...]}
// "obeyed" has every key that is obeyed; the other lists what the text says. Where "wrong" is not empty, the status is
// PENSTOCK_USAGE and the other lists are of what could be read.
//
// Threads: any, at once. Sizes and errors are as in penstock.h.
#ifndef PENSTOCK_CONFIG_H
#define PENSTOCK_CONFIG_H

#include "penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

// Raised with every change that a compiled program would notice.
#define PENSTOCK_CONFIG_ABI_VERSION 1
uint32_t penstock_config_abi_version(void);  // of the library that is loaded

typedef struct penstock_config_text {
    size_t struct_bytes;  // sizeof(penstock_config_text)
    const char* json;     // UTF-8, with comments if you like
    const char* name;     // what messages call it: a path
    // What the caller knows of keys that the text leaves to "auto", as JSON: {"optimizer.params.lr": 2e-5}. Keys that
    // are not "auto" go before it. NULL: nothing.
    const char* known;
    // Sections that the caller brings itself, as JSON: ["optimizer", "scheduler"]. What the text says of them is
    // without effect. NULL: none.
    const char* own;
    uint32_t ranks;  // processes that train: train_batch_size is of all of them. 0: one
} penstock_config_text;

typedef struct penstock_config penstock_config;

// All that is wrong is one message, cut at the length of penstock_error and whole in "wrong". *config is NULL only
// where the call itself was wrong (a NULL) or memory is exhausted.
penstock_status penstock_config_resolve(const penstock_config_text* text, penstock_config** config,
                                        penstock_error* error);
const char* penstock_config_json(const penstock_config* config);  // the config's; NULL of NULL
void penstock_config_free(penstock_config* config);               // NULL is fine

#ifdef __cplusplus
}
#endif

#endif
