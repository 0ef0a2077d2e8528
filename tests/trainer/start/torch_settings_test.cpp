#include "trainer/start/torch_settings.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace penstock::trainer {
namespace {

class TorchSettings : public ::testing::Test {
   protected:
    // They are the process's.
    void TearDown() override {
        at::globalContext().setDeterministicAlgorithms(false, false);
        at::globalContext().setFloat32MatmulPrecision("highest");
        ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
    }

    static TrainConfig config(std::vector<std::string> changes) {
        return make_config(Settings::parse(R"({"data": {"train": "x"}, "memory": {"host_budget": "64MiB"},
                                               "run": {"directory": "r", "steps": 30, "swap_directory": "s"}})",
                                           "test.json", changes));
    }
    static std::vector<std::string> notes(std::vector<std::string> changes) {
        return notes_of_compute(config(std::move(changes)));
    }
};

TEST_F(TorchSettings, WhatIsNotAskedForIsNotSet) {
    for (const auto device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated, zero::DeviceKind::cuda})
        tell_torch({}, device);
    EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
    EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
    EXPECT_EQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), nullptr);
}

TEST_F(TorchSettings, AGpuIsToldToRefuseWhatItCannotDoInOneOrder) {
    tell_torch({.deterministic = true}, zero::DeviceKind::cpu);
    EXPECT_FALSE(at::globalContext().deterministicAlgorithms()) << "a CPU needs no telling";
    tell_torch({.deterministic = true}, zero::DeviceKind::cuda);
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
    EXPECT_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
    EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
}

TEST_F(TorchSettings, AUsersCublasSettingStays) {
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
    tell_torch({.deterministic = true}, zero::DeviceKind::cuda);
    EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":16:8");
}

TEST_F(TorchSettings, ProductsAreRoundedWhereThatIsAskedFor) {
    tell_torch({.matmul = MatmulPrecision::high}, zero::DeviceKind::cuda);
    EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGH);
    EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
}

TEST_F(TorchSettings, WhatNobodyMayExpectOfThemIsSaid) {
    const std::string gpu = "memory.device=cuda";
    EXPECT_TRUE(notes({}).empty());
    EXPECT_TRUE(notes({gpu, "run.deterministic=true"}).empty());
    EXPECT_TRUE(notes({gpu, "run.deterministic=true", "run.matmul=high"}).empty());
    ASSERT_EQ(notes({gpu}).size(), 1U);
    EXPECT_NE(notes({gpu}).front().find("run.deterministic"), std::string::npos);
    ASSERT_EQ(notes({"run.matmul=high"}).size(), 1U);
    EXPECT_NE(notes({"run.matmul=high"}).front().find("for GPUs"), std::string::npos);
    const std::vector<std::string> narrow =
        notes({gpu, "run.deterministic=true", "run.matmul=high", "bf16.enabled=true"});
    ASSERT_EQ(narrow.size(), 1U);
    EXPECT_NE(narrow.front().find("changes nothing"), std::string::npos);
}

}  // namespace
}  // namespace penstock::trainer
