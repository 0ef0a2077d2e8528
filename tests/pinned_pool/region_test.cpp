#include "pinned_pool/region.h"
#include "aio/words/error.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace penstock::pool {
namespace {

TEST(Region, IsAlignedTouchedZeroAndWritable) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, huge_page_bytes, 3 * huge_page_bytes + 8192}) {
        const Region region(bytes, 3, Registration::none);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.data()) % huge_page_bytes, 0U);
        EXPECT_EQ(region.bytes(), (bytes + 4095) / 4096 * 4096);
        // Residency before the first look: looking would touch.
        std::vector<unsigned char> resident(region.bytes() / 4096);
        ASSERT_EQ(::mincore(region.data(), region.bytes(), resident.data()), 0);
        EXPECT_TRUE(std::all_of(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1U) != 0; }));
        EXPECT_TRUE(
            std::all_of(region.data(), region.data() + region.bytes(), [](std::byte b) { return b == std::byte{0}; }));
        std::fill(region.data(), region.data() + region.bytes(), std::byte{0x5a});
        EXPECT_FALSE(region.registered());
    }
}

TEST(Region, SaysWhetherTheKernelGaveHugePages) {
    const Region region(4 * huge_page_bytes, 2, Registration::none);
    EXPECT_LE(region.huge_bytes(), region.bytes());
    EXPECT_EQ(region.huge_bytes() % huge_page_bytes, 0U);
    if (region.huge_bytes() == region.bytes()) {
        EXPECT_EQ(region.note(), "");
    } else {
        EXPECT_NE(region.note().find("bytes of host memory are in 2 MiB pages"), std::string::npos);
        EXPECT_EQ(region.note().find('\n'), std::string::npos);
    }
}

TEST(Region, CountsTheHugePagesOfItsOwnMappingOnly) {
    const Region first(2 * huge_page_bytes, 1, Registration::none);
    const Region small(4096, 1, Registration::none);
    const Region second(2 * huge_page_bytes, 1, Registration::none);
    EXPECT_LE(first.huge_bytes(), first.bytes());
    EXPECT_EQ(small.huge_bytes(), 0U);
    EXPECT_EQ(small.note(), "");  // too short for a huge page: nothing is missing
    EXPECT_LE(second.huge_bytes(), second.bytes());
}

// With whichever half this build has, and with or without a GPU.
TEST(Region, IsRegisteredOrSaysWhyNot) {
    const Region region(4096, 1, Registration::device);
    EXPECT_EQ(region.registered(), region.note().empty());
    EXPECT_EQ(region.note().find('\n'), std::string::npos);
}

TEST(Region, FaultsOnAnOverrunAndAnUnderrun) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    const Region region(8192, 1, Registration::none);
    volatile std::byte* data = region.data();
    EXPECT_DEATH(data[8192] = std::byte{1}, "");
    EXPECT_DEATH(*(data - 1) = std::byte{1}, "");
}

TEST(Region, MovesItsMemory) {
    Region first(8192, 1, Registration::none);
    std::byte* data = first.data();
    data[17] = std::byte{3};
    Region second = std::move(first);
    EXPECT_EQ(first.data(), nullptr);  // NOLINT: the moved-from state is the subject
    EXPECT_EQ(second.data(), data);
    EXPECT_EQ(second.data()[17], std::byte{3});
    second = Region();
    EXPECT_EQ(second.data(), nullptr);
}

TEST(Region, OrphanedStaysMapped) {
    std::byte* data = nullptr;
    {
        Region region(1 << 20, 1, Registration::none);
        data = region.data();
        region.orphan();
        EXPECT_EQ(region.data(), nullptr);
        EXPECT_EQ(region.bytes(), 0U);
    }
    data[(1 << 20) - 1] = std::byte{7};  // faults where nothing is mapped
    EXPECT_EQ(data[0], std::byte{});
}

TEST(Region, IsNotThereInAChildOfTheProcess) {
    const Region region(8192, 1, Registration::none);
    const ::pid_t child = ::fork();
    if (child == 0) {
        unsigned char resident = 0;
        ::_exit(::mincore(region.data(), 4096, &resident) != 0 && errno == ENOMEM ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST(Region, SaysWhatCouldNotBeMapped) {
    try {
        const Region region(std::size_t{1} << 60, 1, Registration::none);
        FAIL() << "an exbibyte was mapped";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::out_of_memory);
        EXPECT_NE(std::string(error.what())
                      .find("cannot map 1152921504606846976 bytes of host memory: Cannot allocate "
                            "memory (ENOMEM)"),
                  std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace penstock::pool
