
#include "aio/words/io_error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace penstock::aio {
namespace {

TEST(IoError, SaysOperationPathOffsetLengthCauseAndTries) {
    const IoError error{IoKind::write, "/data/penstock.data", 4096, 1048576, ENOSPC, 1};
    EXPECT_EQ(error.message(),
              "write /data/penstock.data at offset 4096, 1048576 bytes: No space left on device (ENOSPC), 1 try");
}

TEST(IoError, CallsAnErrorWithoutErrnoWhatItIs) {
    const IoError read{IoKind::read, "f", 0, 512, 0, 2};
    EXPECT_EQ(read.message(), "read f at offset 0, 512 bytes: unexpected end of file, 2 tries");
    const IoError write{IoKind::write, "f", 0, 512, 0, 1};
    EXPECT_EQ(write.message(), "write f at offset 0, 512 bytes: the device moved no bytes and named no reason, 1 try");
}

TEST(IoError, NamesNoRangeForAFlush) {
    const IoError error{IoKind::flush, "f", 0, 0, EIO, 1};
    EXPECT_EQ(error.message(), "flush f: Input/output error (EIO), 1 try");
}

TEST(IoError, GivesTheNumberOfAnUnknownErrno) {
    EXPECT_EQ(errno_text(98765), "Unknown error 98765");
}

}  // namespace
}  // namespace penstock::aio
