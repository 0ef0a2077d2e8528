#include "swap/capi/c_open.h"

#include "aio/words/error.h"
#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"
#include "swap/capi/c_words.h"
#include "swap/format/striping.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>

namespace penstock::store {
namespace {

constexpr std::uint64_t default_tile_bytes = 4ULL << 20;
constexpr std::uint64_t least_granule_bytes = 4096;  // of every store

StoreKind kind_of(const penstock_store_options& options) {
    return options.durability == PENSTOCK_SCRATCH ? StoreKind::scratch : StoreKind::durable;
}

WorkProgress progress_of(const penstock_store_options& options) {
    if (options.progress == nullptr) return {};
    return [&options](std::uint64_t done_bytes, std::uint64_t total_bytes) {
        options.progress(done_bytes, total_bytes, options.progress_user);
    };
}

// ---------------------------------------------------------------- what was given

// What a program cannot be without: the members before are what its store is.
constexpr std::size_t least_options_bytes = offsetof(penstock_store_options, backend);
constexpr std::size_t least_object_bytes = offsetof(penstock_object, tile_bytes);

penstock_store_options checked(const penstock_store_options* given) {
    const penstock_store_options options = taken(given, least_options_bytes, "options");
    require(options.directories != nullptr && options.directory_count > 0, "options name no directory");
    require(options.directory_count <= max_device_count, "options name {} directories; a store has at most {}",
            options.directory_count, max_device_count);
    for (std::size_t i = 0; i < options.directory_count; ++i) required(options.directories[i], "a directory's name");
    required(options.job, "options.job");
    const int mode = number_of(options.mode);
    require(mode >= PENSTOCK_OPEN_OR_CREATE && mode <= PENSTOCK_CREATE, "there is no mode {}", mode);
    static_cast<void>(backend_of(options.backend));
    static_cast<void>(caching_of(options.caching));
    const int durability = number_of(options.durability);
    require(durability == PENSTOCK_DURABLE || durability == PENSTOCK_SCRATCH, "there is no durability {}", durability);
    static_cast<void>(scope_of(options.verify));
    for (std::size_t i = 0; options.bandwidths != nullptr && i < options.directory_count; ++i)
        require(std::isfinite(options.bandwidths[i]) && options.bandwidths[i] > 0,
                "bandwidth {} is {}; more than 0 is needed", i, options.bandwidths[i]);
    if (options.object_count == 0) return options;
    require(options.objects != nullptr, "options.objects is NULL");
    require(options.object_struct_bytes >= least_object_bytes && options.object_struct_bytes <= most_struct_bytes,
            "options.object_struct_bytes is {}; set it to sizeof(penstock_object)", options.object_struct_bytes);
    return options;
}

// Whole tiles lie in memory one after the other only where a tile's end is aligned.
ObjectSpec spec_of(const penstock_object& object) {
    ObjectSpec spec{.name = &required(object.name, "an object's name"),
                    .bytes = object.bytes,
                    .tile_bytes = object.tile_bytes == 0 ? default_tile_bytes : object.tile_bytes};
    require(spec.tile_bytes % least_granule_bytes == 0 || spec.tile_bytes >= spec.bytes,
            "object '{}': tiles of {} bytes; a multiple of {} is needed, or one tile for all {} bytes", spec.name,
            spec.tile_bytes, least_granule_bytes, spec.bytes);
    return spec;
}

aio::IoLimits limits_of(const penstock_store_options& options) {
    const auto deadline = deadline_of(options.deadline_ms);
    return deadline ? aio::IoLimits{.deadline = *deadline} : aio::IoLimits{};
}

std::vector<ObjectSpec> specs_of(const penstock_store_options& options) {
    std::vector<ObjectSpec> specs;
    const auto* next = reinterpret_cast<const std::byte*>(options.objects);
    for (std::size_t i = 0; i < options.object_count; ++i, next += options.object_struct_bytes) {
        penstock_object object{};
        take_struct(next, options.object_struct_bytes, &object, sizeof object, "an object");
        specs.push_back(spec_of(object));
    }
    return specs;
}

// ---------------------------------------------------------------- the store

// Looks without a trace: a directory that is only asked whether it holds a store is neither made nor locked.
void require_store_in(const penstock_store_options& options) {
    for (std::size_t i = 0; i < options.directory_count; ++i) {
        const std::string directory = options.directories[i];
        if (::access((directory + "/" + StoreDirectory::lock_name).c_str(), F_OK) == 0) continue;
        throw Error(ExitCode::storage, fmt::format("{} holds no store; create one there first", directory));
    }
}

void create_store(OpenStore& open, const penstock_store_options& options, std::vector<ObjectSpec> specs) {
    require(!specs.empty(), "options name no objects to create a store with in {}{}", open.directory().path(),
            options.mode == PENSTOCK_CREATE ? "" : ", which holds none");
    CreateOptions create{.objects = std::move(specs), .kind = kind_of(options), .progress = progress_of(options)};
    if (options.bandwidths != nullptr) create.shares = stripe_shares({options.bandwidths, options.directory_count});
    open.create(std::move(create));
}

// Before the store is opened, because that changes it: a new life begins, and a damaged generation may be given up.
void require_wanted(OpenStore& open, const penstock_store_options& options) {
    const std::optional<Manifest>& newest = open.found().newest;
    if (!newest) return;  // open() says why
    if (newest->origin) {
        throw Refusal(PENSTOCK_USAGE,
                      fmt::format("{} is a kept snapshot, which is only read; copy it into a store first",
                                  options.directories[0]));
    }
    if (kind_of(options) == StoreKind::scratch) {
        throw Refusal(PENSTOCK_USAGE, fmt::format("{} holds a durable store, and options ask for a scratch one; choose "
                                                  "another directory",
                                                  options.directories[0]));
    }
}

void open_or_create(OpenStore& open, const penstock_store_options& options, std::vector<ObjectSpec> specs) {
    // A store that is there is not overwritten: create() says so.
    if (options.mode == PENSTOCK_CREATE || (options.mode == PENSTOCK_OPEN_OR_CREATE && !open.committed())) {
        return create_store(open, options, std::move(specs));
    }
    require_wanted(open, options);
    open.open({.objects = std::move(specs), .verify = scope_of(options.verify), .progress = progress_of(options)});
}

}  // namespace

OpenStore open_store(const penstock_store_options* given, const BackendSource& source) {
    const penstock_store_options options = checked(given);
    std::vector<ObjectSpec> specs = specs_of(options);
    if (options.mode == PENSTOCK_OPEN) require_store_in(options);
    OpenStore open({options.directories, options.directories + options.directory_count}, options.job);
    const StoreIoOptions io{
        .caching = caching_of(options.caching), .backend = backend_of(options.backend), .limits = limits_of(options)};
    source ? open.start_io(io, source(open.directory(), options)) : open.start_io(io);
    open_or_create(open, options, std::move(specs));
    return open;
}

}  // namespace penstock::store
