#include "zero_infinity/measure/io_rig.h"

#include "tests/temporary_directory.h"
#include "zero_infinity/measure/block_source.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

constexpr std::uint32_t block_bytes = 64U << 10;

class IoRigTest : public ::testing::Test {
   protected:
    IoRigTest() {
        for (const char* name : {"a", "b"}) {
            const std::string path = directory / name;
            files.emplace_back(AT_FDCWD, path, path, aio::FileOptions{.mode = aio::FileMode::create});
            files.back().reserve(4 * block_bytes);
        }
    }
    std::string text_of(const char* name) const {
        std::ifstream file(directory / name, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    const TemporaryDirectory directory;
    std::vector<aio::File> files;
};

TEST_F(IoRigTest, RequestsAreMadeOneAfterTheOtherEachWithTheFirstLease) {
    zero::IoRig rig(files, zero::plain_rig(block_bytes, 2 * block_bytes));
    std::fill(rig.memory(0).begin(), rig.memory(0).end(), std::byte{'x'});
    std::vector<aio::TransferRequest> requests;
    for (std::uint64_t block = 0; block < 3; ++block)
        requests.push_back(
            {.kind = aio::IoKind::write, .file = &files[0], .offset_bytes = block * block_bytes, .bytes = block_bytes});
    requests.push_back({.kind = aio::IoKind::flush, .file = &files[0]});
    requests.push_back({.kind = aio::IoKind::write, .file = &files[1], .offset_bytes = 0, .bytes = block_bytes});
    EXPECT_EQ(rig.run(requests).bytes, 4 * block_bytes);
    EXPECT_EQ(text_of("a").substr(0, 3 * block_bytes), std::string(3 * block_bytes, 'x'));
    EXPECT_EQ(text_of("b").substr(0, block_bytes), std::string(block_bytes, 'x'));
    EXPECT_EQ(rig.io().statistics().flushes.load(), 1U);
}

TEST_F(IoRigTest, ASourceGoesRoundUntilTheTimeIsOverOrOverTheFileOnce) {
    zero::IoRig rig(files, zero::plain_rig(block_bytes, 2 * block_bytes));
    zero::BlockSource once(
        files[0],
        {.work = zero::BlockWork::write, .block_bytes = block_bytes, .file_bytes = 4 * block_bytes, .once = true});
    EXPECT_EQ(rig.run(once).bytes, 4 * block_bytes);
    zero::BlockSource round(files[0], {.block_bytes = block_bytes, .file_bytes = 4 * block_bytes});
    const zero::Moved moved = rig.run(round, 0.02);
    EXPECT_GT(moved.bytes, 4 * block_bytes);
    EXPECT_GE(moved.seconds, 0.02);
    EXPECT_GT(moved.thread_seconds, 0);
    EXPECT_LE(moved.thread_seconds, moved.cpu_seconds + 1e-3);
}

TEST_F(IoRigTest, WhoeverIsAskedMayEndIt) {
    zero::RigOptions options = zero::plain_rig(block_bytes, block_bytes);
    options.asking = [] { throw std::runtime_error("enough"); };
    zero::IoRig rig(files, options);
    zero::BlockSource round(
        files[0], {.work = zero::BlockWork::write, .block_bytes = block_bytes, .file_bytes = 4 * block_bytes});
    EXPECT_THROW(rig.run(round, 20), std::runtime_error);
}

}  // namespace
}  // namespace penstock::testing
