// The matrix of failing system calls on the product. --runs=N: that many faults of each scene, drawn by the seed,
// instead of a few; no scene has a million.
#include "swap/capi/penstock.h"
#include "tests/refusal.h"
#include "tests/seeds.h"
#include "tests/swap/calls/call_matrix.h"
#include "tests/swap/calls/call_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

namespace penstock::testing {
namespace {

constexpr std::uint64_t usual_runs = 16;  // of each scene

class CallLedger {
   public:
    CallLedger() {
        row("scene", "calls", "places", "faults", "tried", [](CallVerdict verdict) { return to_string(verdict); });
    }
    void add(const std::string& name, const CallTally& tally) {
        sum_ += tally;
        ++scenes_;
        row(name, tally.calls, tally.places, tally.of_all, tally.cases,
            [&](CallVerdict verdict) { return tally.by_verdict[static_cast<std::size_t>(verdict)]; });
    }
    void print_result(double seconds) const {
        const auto of = [this](CallVerdict verdict) { return sum_.by_verdict[static_cast<std::size_t>(verdict)]; };
        std::cout << fmt::format(
            "RESULT failing calls: {} calls of {} scenes failed in {} ways of {}: {} unaffected, {} refused by name, "
            "{} "
            "not made that time; {} vague, {} silent, {} lost, {} leaking, {} hung, {} aborted; seconds: {:.1f}\n",
            sum_.calls, scenes_, sum_.cases, sum_.of_all, of(CallVerdict::unaffected), of(CallVerdict::refused),
            of(CallVerdict::missed), of(CallVerdict::vague), of(CallVerdict::silent), of(CallVerdict::lost),
            of(CallVerdict::leaking), of(CallVerdict::hung), of(CallVerdict::aborted), seconds);
    }
    const CallTally& sum() const { return sum_; }

   private:
    template <typename Name, typename Count, typename ByVerdict>
    static void row(const Name& name, Count calls, Count places, Count faults, Count tried, ByVerdict by_verdict) {
        std::cout << fmt::format("{:<36} {:>6} {:>6} {:>6} {:>6}", name, calls, places, faults, tried);
        for (std::size_t i = 0; i < verdict_count; ++i)
            std::cout << fmt::format(" {:>10}", by_verdict(static_cast<CallVerdict>(i)));
        std::cout << std::endl;
    }

    CallTally sum_;
    int scenes_ = 0;
};

TEST(FailingCalls, EndInWhatWasWantedOrInAnErrorThatLosesNothing) {
    const std::uint64_t first = first_seed();
    const std::uint64_t runs = seed_options().runs.value_or(usual_runs);
    const auto start = std::chrono::steady_clock::now();
    std::cout << replay(first) << " --runs=" << runs << '\n';
    CallLedger ledger;
    std::map<std::string, std::uint64_t> refusals;
    for (const auto& scene : all_scenes()) {
        CallMatrix matrix(*scene);
        std::vector<CallFault> faults = matrix.faults(first);
        if (faults.size() > runs) faults.resize(runs);
        for (const CallFault& fault : faults) {
            if (const std::string complaint = matrix.run(fault); !complaint.empty())
                ADD_FAILURE() << complaint << '\n' << replay(first) << " --runs=" << runs;
        }
        ledger.add(scene->name(), matrix.tally());
        for (const auto& [words, count] : matrix.refusals()) refusals[words] += count;
    }
    for (const auto& [words, count] : refusals) {
        if (runs > usual_runs) std::cout << fmt::format("refused {} times: {}\n", count, words);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    ledger.print_result(seconds.count());
    const auto of = [&](CallVerdict verdict) { return ledger.sum().by_verdict[static_cast<std::size_t>(verdict)]; };
    if (runs >= usual_runs) {
        EXPECT_GT(of(CallVerdict::refused), of(CallVerdict::missed));
        EXPECT_GT(of(CallVerdict::unaffected), 0U);
    }
}

// The file system has room enough: to look for what fills it would be in vain.
TEST(FailingCalls, AQuotaIsNotTakenForAFullDisk) {
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    const std::vector<std::string> paths = call_store_paths(scratch.path(), 1);
    store::OpenStore open = lock_call_store(paths, CallBackend::one_thread);
    watch_calls(CallFault{.call = call_of("fallocate"), .ordinal = 1, .error = EDQUOT, .recurs = Recurs::once});
    const std::string message = refusal_of(ExitCode::does_not_fit, [&] { create_call_store(open); });
    end_watch();
    EXPECT_NE(message.find(paths.front() + "/manifest.1"), std::string::npos) << message;
    EXPECT_NE(message.find("Disk quota exceeded (EDQUOT)"), std::string::npos) << message;
    EXPECT_EQ(message.find("bytes are missing"), std::string::npos) << message;
}

// ---------------------------------------------------------------- every call is in the matrix

// Without the star, where there is one.
bool is_among(const std::string& name, std::string_view names) {
    while (!names.empty()) {
        const std::size_t end = std::min(names.find(' '), names.size());
        const std::string_view one = names.substr(0, end);
        names.remove_prefix(std::min(end + 1, names.size()));
        if (one == name || (one.ends_with('*') && name.starts_with(one.substr(0, one.size() - 1)))) return true;
    }
    return false;
}

std::set<std::string> imports_of(const std::string& library) {
    std::set<std::string> names;
    const std::string command = fmt::format("{} -u '{}' 2>/dev/null", PENSTOCK_NM, library);
    const std::unique_ptr<FILE, int (*)(FILE*)> listing(::popen(command.c_str(), "r"), ::pclose);
    std::array<char, 4096> line{};
    while (listing && std::fgets(line.data(), line.size(), listing.get()) != nullptr) {
        std::istringstream words(line.data());
        std::string kind;
        std::string name;
        if (words >> kind >> name && kind == "U") names.insert(name);
    }
    return names;
}

TEST(FailingCalls, AreAllThatTheLibrariesMake) {
    for (const std::string library : {PENSTOCK_AIO, PENSTOCK_PINNED_POOL, PENSTOCK_SWAP}) {
        const std::set<std::string> imports = imports_of(library);
        ASSERT_GT(imports.size(), 20U) << "nm says nothing of " << library;
        for (const std::string& name : imports) {
            const bool is_watched = std::any_of(watched_calls.begin(), watched_calls.end(),
                                                [&](const WatchedCall& call) { return call.name == name; });
            const bool has_reason = std::any_of(unwatched_calls.begin(), unwatched_calls.end(),
                                                [&](const UnwatchedCall& call) { return is_among(name, call.names); });
            EXPECT_NE(is_watched, has_reason)
                << library << " calls " << name
                << ": let it fail (tests/swap/calls/call_table.h), or say there why that is not needed, but not both";
        }
    }
}

// ---------------------------------------------------------------- manifests are read once

class ReadOnce : public ::testing::Test {
   protected:
    ReadOnce() { make_call_store(paths, newest_generation); }

    // What was read of each manifest, in lengths of the file.
    void expect_each_read_once() {
        const WatchedCalls calls = watched();
        for (const char* name : {"manifest.0", "manifest.1"}) {
            const std::string path = std::filesystem::canonical(paths.front() + "/" + name);
            const auto found = calls.bytes_read.find(path);
            ASSERT_NE(found, calls.bytes_read.end()) << path << " was not read";
            EXPECT_EQ(found->second, std::filesystem::file_size(path)) << path;
        }
    }

    TemporaryDirectory scratch{aio::quick_temporary_path()};
    std::vector<std::string> paths = call_store_paths(scratch.path(), 1);
};

TEST_F(ReadOnce, AtAnOpeningThatFirstAsksWhetherThereIsAStoreAndWhatIsInIt) {
    watch_calls();
    store::OpenStore open(paths, "calls");
    open.start_io({.caching = aio::Caching::buffered});
    ASSERT_TRUE(open.committed());
    EXPECT_EQ(open.found().newest->generation, newest_generation);
    EXPECT_EQ(open.open().generation(), newest_generation);
    end_watch();
    expect_each_read_once();
}

TEST_F(ReadOnce, AtAnOpeningThroughC) {
    const char* const directory = paths.front().c_str();
    penstock_store_options options{};
    options.struct_bytes = sizeof options;
    options.directories = &directory;
    options.directory_count = 1;
    options.job = "calls";
    options.caching = PENSTOCK_PAGE_CACHE;
    penstock_store* opened = nullptr;
    penstock_error error{};
    watch_calls();
    EXPECT_EQ(penstock_store_open(&options, &opened, &error), PENSTOCK_OK) << error.message;
    end_watch();
    expect_each_read_once();
    EXPECT_EQ(penstock_store_close(opened, nullptr), PENSTOCK_OK);
}

TEST_F(ReadOnce, AtAnOpeningThatAsksNothing) {
    watch_calls();
    store::OpenStore open = store::OpenStore::find(paths, store::Sharing::shared);
    open.start_io({.caching = aio::Caching::buffered});
    EXPECT_EQ(open.open().generation(), newest_generation);
    end_watch();
    expect_each_read_once();
}

}  // namespace
}  // namespace penstock::testing
