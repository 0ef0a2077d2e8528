#include "swap/spill/spill_file.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/directory/directory_names.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

namespace penstock::store {
namespace {

std::string shown_path(const StoreDirectory& directory) {
    return directory.path() + "/" + spill_file_name;
}

void remove_name(const StoreDirectory& directory) {
    if (::unlinkat(directory.fd(), spill_file_name, 0) == 0 || errno == ENOENT) return;
    throw Error(ExitCode::storage,
                fmt::format("{} cannot be removed: {}; it belongs to nobody any more: remove it, or check the device.",
                            shown_path(directory), aio::errno_text(errno)));
}

}  // namespace

aio::File make_spill_file(const StoreDirectory& directory, aio::Caching caching) {
    PENSTOCK_CHECK(!directory.shared(), "{} is only read", directory.path());
    std::optional<aio::File> file = aio::File::nameless(directory.fd(), shown_path(directory), caching);
    return file ? std::move(*file) : make_spill_file_by_name(directory, caching);
}

aio::File make_spill_file_by_name(const StoreDirectory& directory, aio::Caching caching) {
    PENSTOCK_CHECK(!directory.shared(), "{} is only read", directory.path());
    remove_name(directory);
    aio::File file(directory.fd(), spill_file_name, shown_path(directory),
                   {.mode = aio::FileMode::create, .caching = caching});
    remove_name(directory);
    return file;
}

}  // namespace penstock::store
