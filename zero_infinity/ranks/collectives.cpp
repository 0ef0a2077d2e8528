#include "zero_infinity/ranks/collectives.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/ranks/call_notice.h"
#include "zero_infinity/ranks/in_pieces.h"

namespace penstock::zero {

Collectives::Collectives(Transport& transport, std::size_t piece_bytes)
    : transport_(&transport), piece_bytes_(piece_bytes) {
    PENSTOCK_CHECK(piece_bytes > 0, "pieces of no bytes");
}

void Collectives::compare(std::string_view what, std::size_t bytes) {
    CallNotice own{.number = ++calls_, .bytes = bytes, .kind = CallKind::small};
    set_what(own, what);
    if (const std::string found = difference_at(*transport_, own, {}); !found.empty())
        throw Error(ExitCode::usage, found);
}

void Collectives::all_gather(std::string_view what, std::span<const std::byte> mine, std::span<std::byte> all) {
    PENSTOCK_CHECK(all.size() == ranks() * mine.size(), "{} bytes for {} of each of {} ranks", all.size(), mine.size(),
                   ranks());
    compare(what, mine.size());
    gather_in_pieces(*transport_, mine, all, piece_bytes_);
}

}  // namespace penstock::zero
