// Compiled with two headers: PENSTOCK_CALL is the function's name, PENSTOCK_WISH that of the second one, if any.
#include "tests/swap/capi/sized_caller.h"

#include <penstock.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

namespace penstock::testing {
namespace {

constexpr unsigned char untouched = 0xa5;
constexpr std::size_t behind_bytes = 64;

// What follows the structure says whether the library wrote behind it.
template <typename Struct>
struct Watched {
    Watched() {
        std::fill(std::begin(behind), std::end(behind), untouched);
        given.struct_bytes = sizeof given;
    }
    bool kept() const {
        return given.struct_bytes == sizeof given &&
               std::all_of(std::begin(behind), std::end(behind), [](unsigned char byte) { return byte == untouched; });
    }
    Struct given{};
    unsigned char behind[behind_bytes];
};

struct CloseCalled {
    void operator()(penstock_store* store) const { penstock_store_close(store, nullptr); }
};
using Store = std::unique_ptr<penstock_store, CloseCalled>;

penstock_error error;

template <typename Change>
Store open(const char* directory, Change change) {
    penstock_object objects[2]{};
    objects[0].name = "first";
    objects[0].bytes = 8192;
    objects[1].name = "second";
    objects[1].bytes = 12288;
    penstock_store_options options{};
    options.struct_bytes = sizeof options;
    options.directories = &directory;
    options.directory_count = 1;
    options.job = "sizes";
    options.objects = objects;
    options.object_count = 2;
    options.object_struct_bytes = sizeof objects[0];
    change(options, objects[1]);
    penstock_store* store = nullptr;
    penstock_store_open(&options, &store, &error);
    return Store(store);
}

const char* finish(penstock_store* store, penstock_status begun) {
    Watched<penstock_result> result;
    if (begun != PENSTOCK_OK || penstock_next(store, -1, &result.given, &error) != PENSTOCK_OK) return error.message;
    if (!result.kept()) return "something was written behind the result";
    return result.given.status == PENSTOCK_OK ? "" : "an operation failed";
}

const char* look(penstock_store* store) {
    Watched<penstock_object_info> found;
    if (penstock_find(store, "second", &found.given, &error) != PENSTOCK_OK) return error.message;
    if (!found.kept()) return "something was written behind the info";
    if (found.given.object != 1 || found.given.bytes != 12288) return "another object was found";
    Watched<penstock_object_info> second;
    if (penstock_object_at(store, 1, &second.given, &error) != PENSTOCK_OK) return error.message;
    return second.kept() && std::strcmp(second.given.name, "second") == 0 ? "" : "the info is a wrong one";
}

}  // namespace

const char* PENSTOCK_CALL(const char* directory) {
    const Store store = open(directory, [](penstock_store_options&, penstock_object&) {});
    if (!store) return error.message;
    if (const char* wrong = look(store.get()); *wrong != '\0') return wrong;
    constexpr std::size_t bytes = 12288;
    const std::unique_ptr<unsigned char, decltype(&std::free)> data(
        static_cast<unsigned char*>(std::aligned_alloc(4096, bytes)), std::free);
    std::memset(data.get(), 7, bytes);
    const penstock_memory memory{data.get(), bytes, nullptr};
    const penstock_range range{1, 0, 0};
    const char* wrong =
        finish(store.get(), penstock_write(store.get(), range, memory, PENSTOCK_DEMAND, nullptr, &error));
    if (*wrong == '\0') wrong = finish(store.get(), penstock_commit(store.get(), nullptr, &error));
    std::memset(data.get(), 0, bytes);
    if (*wrong == '\0')
        wrong = finish(store.get(), penstock_read(store.get(), range, memory, PENSTOCK_DEMAND, nullptr, &error));
    return *wrong == '\0' && data.get()[bytes - 1] != 7 ? "other bytes were read" : wrong;
}

#ifdef PENSTOCK_WISH
const char* PENSTOCK_WISH(const char* directory) {
    static char answers[2 * sizeof error.message];
    const Store first =
        open(directory, [](penstock_store_options& options, penstock_object&) { options.later[1] = 1; });
    std::strcpy(answers, first ? "options were taken; " : error.message);
    const Store second = open(directory, [](penstock_store_options&, penstock_object& object) { object.later[2] = 1; });
    return std::strcat(answers, second ? "objects were taken" : error.message);
}
#endif

}  // namespace penstock::testing
