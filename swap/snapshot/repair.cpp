#include "swap/snapshot/repair.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "aio/words/size_limit.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/held_files.h"
#include "swap/directory/recovery.h"
#include "swap/store/blocking.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace penstock::store {
namespace {

[[noreturn]] void fail(const std::string& path, const char* action, int errno_value) {
    throw Error(ExitCode::storage,
                fmt::format("{}: {}: {}; check the device.", path, action, aio::errno_text(errno_value)));
}

Descriptor open_manifest(const StoreDirectory& directory, const std::string& name, int flags) {
    Descriptor file(::openat(directory.fd(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | flags, 0600));
    if (!file) fail(directory.path() + "/" + name, "it cannot be opened", errno);
    return file;
}

// Its length says where copy 2 begins, so a wrong one hides whole copies. Returns what was done, or nothing.
std::string give_length(const StoreDirectory& directory, const std::string& name, bool missing, std::uint64_t bytes) {
    const std::string path = directory.path() + "/" + name;
    const Descriptor file = open_manifest(directory, name, missing ? O_CREAT | O_EXCL : 0);
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) fail(path, "it cannot be examined", errno);
    const auto found = static_cast<std::uint64_t>(status.st_size);
    if (!S_ISREG(status.st_mode) || found == bytes) return {};
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 || ::fsync(file.get()) != 0)
        fail(path, "it cannot be given its length", errno);
    directory.sync();
    if (missing) return fmt::format("{} was missing; an empty one is in its place", path);
    return fmt::format("{} had {} bytes; it has its {} bytes again", path, found, bytes);
}

void copy_place(const StoreDirectory& directory, const std::string& name, std::uint64_t from, std::uint64_t to,
                std::uint64_t bytes) {
    const std::string path = directory.path() + "/" + name;
    const Descriptor file = open_manifest(directory, name, 0);
    std::vector<std::byte> place(bytes);
    const auto expect = [&](ssize_t moved, const char* action) {
        if (moved != static_cast<ssize_t>(bytes)) fail(path, action, moved < 0 ? errno : EIO);
    };
    expect(::pread(file.get(), place.data(), bytes, static_cast<off_t>(from)), "its whole copy cannot be read");
    if (!decode(place).valid)
        throw Error(ExitCode::storage, fmt::format("{} at offset {}: the copy was whole, and is not when it is read "
                                                   "again; check the drive (dmesg, smartctl).",
                                                   path, from));
    expect(::pwrite(file.get(), place.data(), bytes, static_cast<off_t>(to)), "its other copy cannot be written");
    if (::fdatasync(file.get()) != 0) fail(path, "its other copy cannot be made durable", errno);
}

std::string why_rewritten(const ManifestCopy& copy) {
    if (copy.state == ManifestCopy::State::whole) return fmt::format("was still of generation {}", copy.generation);
    return copy.state == ManifestCopy::State::blank ? "was empty" : fmt::format("was damaged ({})", copy.problem);
}

// What is in a file that cannot be read, nobody can repair by what is in the other.
Recovery recover_all(const StoreDirectory& directory) {
    Recovery recovery = recover(directory);
    const std::vector<std::string> hidden = recovery.hidden(directory.path());
    if (hidden.empty()) return recovery;
    throw Error(ExitCode::storage, fmt::format("{}: a manifest cannot be read, so none is repaired by the other. {}. "
                                               "Try again when the cause is gone (dmesg, ulimit -n).",
                                               directory.path(), fmt::join(hidden, "; ")));
}

}  // namespace

std::vector<std::string> repair_manifests(const StoreDirectory& directory, std::chrono::nanoseconds patience,
                                          const WaitNotice& notice) {
    PENSTOCK_CHECK(!directory.shared(), "{} is only read", directory.path());
    const aio::NoSizeSignal quiet;
    const HeldFiles held(directory, manifest_file_names, patience, notice);
    Recovery recovery = recover_all(directory);
    if (!recovery.newest) return {};
    const std::uint64_t place_bytes = manifest_capacity(Layout(recovery.newest->objects, recovery.newest->geometry));
    std::vector<std::string> done;
    for (std::size_t file = 0; file < manifest_file_names.size(); ++file) {
        const bool missing = recovery.copies[file][0].state == ManifestCopy::State::missing;
        std::string line = give_length(directory, manifest_file_names[file], missing, 2 * place_bytes);
        if (!line.empty()) done.push_back(std::move(line));
    }
    if (!done.empty()) recovery = recover_all(directory);
    for (std::size_t file = 0; file < manifest_file_names.size(); ++file) {
        const auto& copies = recovery.copies[file];
        const auto worth = [](const ManifestCopy& copy) {
            return copy.state == ManifestCopy::State::whole ? copy.generation + 1 : 0;
        };
        const std::size_t best = worth(copies[0]) >= worth(copies[1]) ? 0 : 1;
        if (worth(copies[best]) == worth(copies[1 - best])) continue;
        copy_place(directory, manifest_file_names[file], best * place_bytes, (1 - best) * place_bytes, place_bytes);
        done.push_back(fmt::format("{}/{} at offset {}: copy {} {}; it was rewritten from copy {}, generation {}",
                                   directory.path(), manifest_file_names[file], (1 - best) * place_bytes, 2 - best,
                                   why_rewritten(copies[1 - best]), best + 1, copies[best].generation));
    }
    return done;
}

FoundBytes find_bytes(aio::Io& io, const TensorStore& store, TileId tile, const TileRecord& record,
                      std::span<TensorStore* const> sources, std::span<std::byte> memory) {
    FoundBytes found;
    const std::uint64_t bytes = store.extent_bytes(tile);
    for (std::size_t i = 0; i < sources.size(); ++i) {
        TensorStore& source = *sources[i];
        if (!source.written(tile)) continue;
        const std::uint64_t there = source.extent_bytes(tile);
        PENSTOCK_CHECK(memory.size() >= std::max(bytes, there), "memory of {} bytes", memory.size());
        try {
            read_blocking(io, source, tile, memory);
        } catch (const Error& error) {
            if (source.abandoned()) throw;  // the device may still write into the memory
            found.problems.emplace_back(error.what());
            continue;
        }
        if (there < bytes) std::fill(memory.begin() + static_cast<std::ptrdiff_t>(there), memory.end(), std::byte{0});
        if (hash_tile(memory.first(bytes), store.identity(tile, record.generation)) != record.hash) continue;
        found.source = i;
        break;
    }
    return found;
}

}  // namespace penstock::store
