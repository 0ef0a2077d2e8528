// Makes and removes kept snapshots of a store that no training uses.
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/snapshot/snapshot_copy.h"

#include "swap/store/blocking.h"
#include "trainer/ckpt/ckpt.h"
#include "trainer/ckpt/ckpt_store.h"
#include "trainer/cli/ckpt_words.h"
#include "trainer/cli/console.h"
#include "trainer/cli/progress_line.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <cerrno>

namespace penstock::trainer {
namespace {

using nlohmann::ordered_json;

void check_name(const std::string& name) {
    if (store::is_snapshot_name(name)) return;
    throw Error(ExitCode::usage, fmt::format("'{}' is no name for a snapshot: 1 to 100 of the characters A-Z a-z 0-9 . "
                                             "_ -, not beginning with a dot",
                                             value_text(name)));
}

void check_not_in_use(const std::string& directory) {
    const auto look = look_at_store(directory);
    if (!look || !look->in_use) return;
    refuse_if_in_use(directory,
                     fmt::format("have that training keep a snapshot while it goes on: kill -USR1 {}, or keep.every in "
                                 "its configuration",
                                 look->holders.front().pid));
}

void make_folder(const std::string& folder) {
    if (::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return;
    const int error = errno;
    throw Error(ExitCode::storage,
                fmt::format("{}: the folder cannot be made: {}; create its parent directory or correct the path",
                            folder, aio::errno_text(error)));
}

struct Copied {
    std::string path;
    std::uint64_t generation = 0;
    std::uint64_t bytes = 0;
    double seconds = 0;
};

// What fails leaves an unfinished store in `target`.
Copied copy(store::OpenStore& from, store::StoreDirectory& target, Console& console) {
    Copied copied{.path = target.path()};
    const auto to = create_snapshot(from.io(), from.store(), target, aio::Caching::direct);
    ProgressLine line(console, "keep");
    copy_tiles(from.io(), from.store(), *to, [&](std::uint64_t done, std::uint64_t total) {
        line.show(done, total);
        copied.bytes = done;
    });
    commit_blocking(from.io(), *to, from.store().client());
    copied.generation = to->origin()->generation;
    copied.seconds = line.seconds();
    return copied;
}

Copied keep(const CkptRequest& request, Console& console) {
    store::OpenStore from = open_store(request, console);
    const std::string folder = snapshot_folder_of(request);
    make_folder(folder);
    const std::string path = folder + "/" + request.name;
    bool ours = false;  // the directory is this job's and holds nothing that was finished
    try {
        store::StoreDirectory target(path, from.directory().job());
        ours = target.content() != store::DirectoryContent::committed;
        if (!ours)
            throw Error(ExitCode::usage,
                        fmt::format("{} is there already; choose another name, or remove it: penstock ckpt rm {} {}",
                                    path, request.directory, request.name));
        return copy(from, target, console);
    } catch (...) {
        if (ours) {
            try {
                store::remove_snapshot(path, aio::default_deadline, told_to(console));
            } catch (const Error& error) {
                console.warn(fmt::format("the unfinished snapshot is still there: {}", error.what()));
            }
        }
        throw;
    }
}

}  // namespace

CkptResult ckpt_keep(const CkptRequest& request, Console& console) {
    check_name(request.name);
    check_not_in_use(request.directory);
    const Copied copied = keep(request, console);
    if (request.json)
        return {.text = dump({{"name", request.name},
                              {"path", copied.path},
                              {"generation", copied.generation},
                              {"bytes", copied.bytes},
                              {"seconds", copied.seconds}})};
    return {.text = fmt::format("{}: generation {} is kept, {} in {:.2f} s\n", copied.path, copied.generation,
                                size_text(copied.bytes), copied.seconds)};
}

CkptResult ckpt_rm(const CkptRequest& request, Console& console) {
    const std::string path = snapshot_path(request);
    store::remove_snapshot(path, aio::default_deadline, told_to(console));
    if (request.json) return {.text = dump({{"removed", path}})};
    return {.text = fmt::format("{} is removed\n", path)};
}

}  // namespace penstock::trainer
