// Feeds each rule what it must refuse: a checker that cannot complain checks nothing.
#include "tests/tidy/rules.h"

#include "tests/tidy/cpp_text.h"

#include <gtest/gtest.h>

namespace penstock::tidy {
namespace {

bool refuses(const std::string& path, const std::string& text) {
    return !check_file(path, text).empty();
}

std::string function_with_lines(std::size_t lines) {
    std::string text = "namespace x {\nint f(int a) {\n";
    for (std::size_t i = 2; i < lines; ++i) text += "    if (a) { a += '{'; }  // }}}\n";
    return text + "}\n}\n";
}

TEST(TidyRules, RefusesIncludesToTheRight) {
    EXPECT_TRUE(refuses("aio/io.cpp", "#include \"pinned_pool/region.h\"\n"));
    EXPECT_TRUE(refuses("swap/format/layout.h", "#  include <zero_infinity/plan/plan.h>\n"));
    EXPECT_TRUE(refuses("zero_infinity/plan/plan.h", "#include \"zero_infinity/engine/engine.h\"\n"));
    EXPECT_TRUE(refuses("trainer/main.cpp", "#include \"tests/fakes.h\"\n"));
    EXPECT_TRUE(refuses("bench/main.cpp", "#include \"tests/fakes.h\"\n"));
    EXPECT_TRUE(refuses("tests/aio/io_test.cpp", "#include \"bench/harness/report.h\"\n"));
    EXPECT_FALSE(refuses("tests/bench/harness/report_test.cpp", "#include \"bench/harness/report.h\"\n"));
    EXPECT_FALSE(refuses("swap/format/layout.cpp",
                         "#include \"swap/format/layout.h\"\n#include \"aio/io.h\"\n#include <vector>\n"));
    EXPECT_FALSE(
        refuses("aio/io.cpp",
                "// #include \"swap/format/layout.h\"\nauto s = R\"(\n#include \"swap/format/layout.h\"\n)\";\n"));
}

TEST(TidyRules, RefusesHeavyHeadersOutsideTheirFiles) {
    EXPECT_TRUE(refuses("pinned_pool/region.cpp", "#include <cuda_runtime.h>\n"));
    EXPECT_TRUE(refuses("zero_infinity/engine/device.cpp", "#include <c10/cuda/CUDAStream.h>\n"));
    EXPECT_TRUE(refuses("aio/io.cpp", "#include <liburing.h>\n"));
    EXPECT_TRUE(refuses("aio/backend/uring_backend.cpp", "#include <libaio.h>\n"));
    EXPECT_TRUE(refuses("zero_infinity/engine/comm.cpp", "#include <nccl.h>\n"));
    EXPECT_TRUE(refuses("zero_infinity/comm.cpp", "#include <mpi.h>\n"));
    EXPECT_TRUE(refuses("zero_infinity/plan/plan.cpp", "#include <ATen/ATen.h>\n"));
    EXPECT_TRUE(refuses("swap/store/tensor_store.cpp", "#include <spdlog/spdlog.h>\n"));
    EXPECT_TRUE(refuses("trainer/config/config.h", "#include <nlohmann/json.hpp>\n"));
    EXPECT_TRUE(refuses("aio/io.cpp", "#include <nlohmann/json.hpp>\n"));
    EXPECT_TRUE(refuses("aio/profile.h", "#include <nlohmann/json.hpp>\n"));
    EXPECT_FALSE(refuses("aio/profile.cpp", "#include <nlohmann/json.hpp>\n"));
    EXPECT_FALSE(refuses("trainer/config/config.h", "#include <nlohmann/json_fwd.hpp>\n#include <spdlog/fwd.h>\n"));
    EXPECT_FALSE(refuses("pinned_pool/region_cuda.cpp", "#include <cuda_runtime_api.h>\n"));
    EXPECT_FALSE(refuses("zero_infinity/engine/session.cpp", "#include <torch/types.h>\n"));
}

TEST(TidyRules, RefusesARingHeaderInTwoFilesOrInNone) {
    const std::string ring = "#include <liburing.h>\n";
    const std::string aio = "#include <libaio.h>\n";
    EXPECT_TRUE(check_ring_headers({{"aio/a.cpp", ring}, {"aio/b.cpp", aio}}).empty());
    EXPECT_FALSE(check_ring_headers({{"aio/a.cpp", ring}, {"aio/b.cpp", aio}, {"swap/c.cpp", ring}}).empty());
    EXPECT_FALSE(check_ring_headers({{"aio/a.cpp", ring}, {"aio/b.cpp", aio}, {"swap/c.cpp", aio}}).empty());
    EXPECT_FALSE(check_ring_headers({{"aio/b.cpp", aio}}).empty());
    EXPECT_FALSE(check_ring_headers({{"aio/a.cpp", ring}}).empty());
}

TEST(TidyRules, RefusesWhatIsTooLong) {
    EXPECT_FALSE(refuses("aio/a.cpp", function_with_lines(function_lines_max)));
    EXPECT_TRUE(refuses("aio/a.cpp", function_with_lines(function_lines_max + 1)));
    EXPECT_FALSE(refuses("aio/a.cpp", std::string(line_columns_max, '/') + "\n"));
    EXPECT_TRUE(refuses("aio/a.cpp", std::string(line_columns_max + 1, '/') + "\n"));
    EXPECT_FALSE(refuses(
        "aio/a.cpp", "// " + std::string(100, ' ') + "\xE2\x89\xA4\xE2\x89\xA4\xE2\x89\xA4\xE2\x89\xA4\xE2\x89\xA4\n"));
    EXPECT_FALSE(refuses("aio/a.cpp", std::string(file_lines_max, '\n')));
    EXPECT_TRUE(refuses("aio/a.cpp", std::string(file_lines_max + 1, '\n')));
    EXPECT_TRUE(refuses("zero_infinity/capi/c_a.h", std::string(file_lines_max + 1, '\n')));
    for (const char* longer : {"tests/aio/a_test.cpp", "zero_infinity/capi/penstock_session.h"}) {
        EXPECT_FALSE(refuses(longer, std::string(long_file_lines_max, '\n'))) << longer;
        EXPECT_TRUE(refuses(longer, std::string(long_file_lines_max + 1, '\n'))) << longer;
    }
}

TEST(TidyRules, FindsFunctionsInClassesAndPassesOverTheRest) {
    const std::string filler(80, '\n');
    EXPECT_TRUE(refuses("aio/a.h",
                        "class A {\n public:\n  template <class T>\n  A(T t) : b_{t}, c_(1) {" + filler + "}\n};\n"));
    EXPECT_TRUE(refuses("tests/a_test.cpp", "TEST(A, B) {" + filler + "}\n"));
    EXPECT_TRUE(refuses("aio/a.cpp", "auto f() -> int\n{" + filler + "}\n"));
    EXPECT_FALSE(refuses("aio/a.h", "struct alignas(64) A : B<int> {" + filler + "};\n"));
    EXPECT_FALSE(refuses("aio/a.cpp", "const std::function<void(int)> table[] = {" + filler + "};\n"));
    EXPECT_FALSE(refuses("aio/a.cpp", "enum class E {" + filler + "};\nint big = 1'000'000;\n"));
    EXPECT_TRUE(refuses("aio/a.cpp", "void f() {\n"));
}

TEST(TidyRules, RefusesForbiddenWords) {
    EXPECT_TRUE(refuses("aio/a.cpp",
                        "// TO"
                        "DO later\n"));
    EXPECT_TRUE(refuses("aio/a.cpp", "void f() { assert(true); }\n"));
    EXPECT_TRUE(refuses("swap/a.cpp", "auto home = std::getenv(\"HOME\");\n"));
    EXPECT_TRUE(refuses("aio/a.cpp", "#ifdef PENSTOCK_HAVE_CUDA\n#endif\n"));
    EXPECT_TRUE(refuses("trainer/a.cpp", "#if defined(USE_CUDA)\n#endif\n"));
    EXPECT_FALSE(refuses("trainer/a.cpp", "auto home = std::getenv(\"HOME\");\nstatic_assert(true);\n"));
    EXPECT_TRUE(refuses("zero_infinity/plan/a.cpp", "auto room = pool::MachineMemory::read();\n"));
    EXPECT_TRUE(refuses("zero_infinity/order/a.h", "auto now = std::chrono::steady_clock::now();\n"));
    EXPECT_FALSE(refuses("zero_infinity/plan/a.h", "// MachineRoom::read()\nvoid plan(const MachineRoom& room);\n"));
    EXPECT_FALSE(refuses("zero_infinity/session/a.cpp", "auto room = MachineRoom::read({});\n"));
    EXPECT_FALSE(refuses("aio/a.cpp", "// assert( is off in release builds\n#ifdef __AVX512F__\n#endif\n"));
}

TEST(TidyRules, RefusesASourceThatNoListNames) {
    const Tree listed{{"tests/aio/io_test.cpp", ""},
                      {"tests/aio/CMakeLists.txt", "penstock_test(aio FILES io_test.cpp)"}};
    const Tree longer_name{{"tests/aio/io_test.cpp", ""}, {"tests/aio/CMakeLists.txt", "FILES my_io_test.cpp)"}};
    const Tree in_parent{{"swap/x/a.cpp", ""}, {"swap/CMakeLists.txt", "SOURCES x/a.cpp\n"}};
    EXPECT_TRUE(check_listed(listed).empty());
    EXPECT_TRUE(check_listed(in_parent).empty());
    EXPECT_FALSE(check_listed(longer_name).empty());
    EXPECT_FALSE(check_listed({{"aio/io.cpp", ""}}).empty());
}

TEST(TidyRules, RefuseIncludesOfARoomToTheRight) {
    EXPECT_TRUE(refuses("swap/format/layout.h", "#include \"swap/store/tensor_store.h\"\n"));
    EXPECT_TRUE(refuses("aio/io.cpp", "#include \"aio/backend/perform.h\"\n"));
    EXPECT_TRUE(refuses("trainer/config/config.h", "#include \"trainer/run/train.h\"\n"));
    EXPECT_TRUE(refuses("swap/attic/old.h", ""));
    EXPECT_FALSE(refuses("swap/store/commit.cpp", "#include \"swap/format/layout.h\"\n"));
    EXPECT_FALSE(refuses("trainer/main.cpp", "#include \"trainer/run/train.h\"\n"));
}

TEST(TidyRules, RefuseAnotherLayersNamespace) {
    EXPECT_TRUE(refuses("aio/io.h", "namespace penstock {\nclass Io {};\n}\n"));
    EXPECT_TRUE(refuses("swap/store/commit.h", "namespace penstock::aio {\nint f();\n}\n"));
    EXPECT_TRUE(refuses("aio/words/check.h", "namespace penstock::aio {\nint f();\n}\n"));
    EXPECT_FALSE(refuses("aio/words/check.h", "namespace penstock {\nint f();\n}\n"));
    EXPECT_FALSE(
        refuses("zero_infinity/device/device.h",
                "namespace penstock::pool {\nclass PinnedPool;\n}\n\nnamespace penstock::zero {\nint f();\n}\n"));
    EXPECT_FALSE(refuses("zero_infinity/engine/engine.h", "namespace penstock::engine {\nclass Engine {};\n}\n"));
}

TEST(TidyRules, RefuseATypesNameInTwoHeaders) {
    const auto in_two = [](const std::string& first, const std::string& second) {
        return !check_type_names({{"aio/a.h", "namespace penstock::aio {\n" + first + "\n}\n"},
                                  {"bench/io/b.h", "namespace penstock::bench {\n" + second + "\n}\n"}})
                    .empty();
    };
    EXPECT_TRUE(in_two("class Pass {\n};", "struct Pass : Base {\n};"));
    EXPECT_TRUE(in_two("enum class Pass : int { a };", "using Pass = int;"));
    EXPECT_TRUE(in_two("template <typename T>\nclass Pass final {};", "class [[nodiscard]] Pass {};"));
    EXPECT_FALSE(in_two("class Pass {\n};", "class Pass;"));
    EXPECT_FALSE(in_two("class Pass {\n};", "class Other {\n    struct Pass {};\n};"));
    EXPECT_FALSE(in_two("class Pass {\n};", "namespace {\nstruct Pass {};\n}"));
    EXPECT_FALSE(in_two("class Pass {\n};", "void f(Pass pass) {\n}"));
}

TEST(TidyRules, RefuseAnInstalledHeaderThatIncludesWhatIsNot) {
    const auto refused = [](const std::string& list, const std::string& include) {
        return !check_installed({{"swap/packaging/CMakeLists.txt", list},
                                 {"aio/io.h", "#include \"" + include + "\"\n"},
                                 {"aio/file.h", ""}})
                    .empty();
    };
    EXPECT_TRUE(refused("set(headers\n  aio/io.h)\n", "aio/file.h"));
    EXPECT_TRUE(refused("set(headers\n  aio/io.h\n  aio/file.hpp)\n", "aio/file.h"));
    EXPECT_FALSE(refused("set(headers\n  aio/file.h\n  aio/io.h)\n", "aio/file.h"));
    EXPECT_FALSE(refused("set(headers\n  aio/io.h)\n", "vector"));
    EXPECT_FALSE(refused("set(headers\n  aio/words.h)\n", "aio/file.h"));
    EXPECT_FALSE(check_installed({}).empty());
}

TEST(TidyRules, RefuseARoomThatNamesOthersThanItUses) {
    const auto refused = [](const std::string& uses, const std::string& include) {
        const std::string rooms =
            "layer\npenstock_room(swap format SOURCES format/layout.cpp)\n"
            "penstock_room(swap blocks\n  SOURCES\n    blocks/share.cpp)\n";
        return !check_uses({{"swap/CMakeLists.txt", rooms + "penstock_room(swap store\n  " + uses + "SOURCES\n    " +
                                                        "store/commit.cpp\n    store/verify.cpp)\n"},
                            {"swap/store/verify.h", "#include \"" + include + "\"\n"}})
                    .empty();
    };
    EXPECT_TRUE(refused("", "swap/format/layout.h"));
    EXPECT_TRUE(refused("USES blocks\n  ", "swap/format/layout.h"));
    EXPECT_TRUE(refused("USES format blocks\n  ", "swap/format/layout.h"));
    EXPECT_FALSE(refused("USES format\n  ", "swap/format/layout.h"));
    EXPECT_FALSE(refused("", "swap/store/commit.h"));
    EXPECT_FALSE(refused("", "aio/io.h"));
}

TEST(TidyRules, RefuseAFolderOfTooManyFiles) {
    Tree tree;
    for (std::size_t i = 0; i < folder_files_max; ++i) tree["aio/" + std::to_string(i) + ".h"] = "";
    EXPECT_TRUE(check_folders(tree).empty());
    tree["aio/backend/a.h"] = "";
    EXPECT_TRUE(check_folders(tree).empty());
    tree["aio/one_more.h"] = "";
    EXPECT_FALSE(check_folders(tree).empty());
}

}  // namespace
}  // namespace penstock::tidy
