// What generated kernels move against what their fused group cannot avoid: hand-built programs with
// known waste, and lowered ones as text (fusion/*.hir).
#include "lower/traffic.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "ir/text.h"
#include "lower/print.h"
#include "tests/offload/lowered_fixture.h"
#include "tests/support/check_lines.h"

namespace hyper::lower {
namespace {

using hyper::testing::LoweredBuilder;

constexpr int64_t kMatrix = 4 * 8 * 8;  // bytes of f32[8,8]

// One function over f32[8,8] matrices x (input), y and z (results) and a temporary t.
class TrafficTest : public ::testing::Test {
 protected:
  TrafficTest() {
    x_ = b_.Root("x", Storage::kInput, {8, 8});
    y_ = b_.Root("y", Storage::kResult, {8, 8});
    z_ = b_.Root("z", Storage::kResult, {8, 8});
    t_ = b_.Temporary({8, 8});
    f_ = &b_.Function("eval");
  }
  void Call(int group, std::vector<Operand> operands) {
    GeneratedKernel kernel;
    kernel.form = "map";
    LoweredBuilder::Call(*f_, "op", std::move(operands), kernel).group = group;
  }
  void Account() { AccountTraffic(b_.module.roots, f_); }
  int64_t Moved(size_t i) const { return f_->ops[i].bytes_moved; }
  int64_t Bound(size_t i) const {
    return std::get<GeneratedKernel>(f_->ops[i].kernel).lower_bound_bytes;
  }
  // Rows [from, to) of a matrix.
  Operand Rows(int root, int64_t from, int64_t to) const {
    return {{root}, {{ir::DType::kF32, {to - from, 8}}, {8, 1}, 8 * from}, Access::kRead};
  }

  LoweredBuilder b_;
  LoweredFunction* f_;
  int x_, y_, z_, t_;
};

TEST_F(TrafficTest, AMapMovesItsBound) {
  Call(0, {b_.Read(x_), b_.Write(y_)});
  Account();
  EXPECT_EQ(Moved(0), 2 * kMatrix);
  EXPECT_EQ(Bound(0), 2 * kMatrix);
  EXPECT_EQ(f_->ops[0].group, 1);
}

// Planted waste: the ratio shows each of them.
TEST_F(TrafficTest, AnInputReadTwiceIsFlagged) {
  Call(0, {b_.Read(x_), b_.Read(x_), b_.Write(y_)});
  Operand transposed = b_.Read(x_);
  transposed.view.strides = {1, 8};
  Call(0, {b_.Read(x_), transposed, b_.Write(z_)});
  Account();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Moved(i), 3 * kMatrix) << i;
    EXPECT_EQ(Bound(i), 2 * kMatrix) << i;
  }
}

TEST_F(TrafficTest, OverlappingSlicesCountTheirUnion) {
  Call(0, {Rows(x_, 0, 6), Rows(x_, 2, 8), b_.Write(y_)});
  Account();
  EXPECT_EQ(Moved(0), kMatrix * 12 / 8 + kMatrix);
  EXPECT_EQ(Bound(0), 2 * kMatrix);
}

// Even and odd columns interleave in memory and share nothing.
TEST_F(TrafficTest, InterleavedSlicesAreApart) {
  std::vector<Operand> operands;
  for (int64_t i = 0; i < 2; ++i) {
    operands.push_back({{x_}, {{ir::DType::kF32, {8, 4}}, {8, 2}, i}, Access::kRead});
  }
  operands.push_back(b_.Write(y_));
  Call(0, operands);
  Account();
  EXPECT_EQ(Moved(0), 2 * kMatrix);
  EXPECT_EQ(Bound(0), 2 * kMatrix);
}

TEST_F(TrafficTest, ABroadcastReadsWhatItTouches) {
  Operand row = Rows(x_, 0, 1);
  row.view.type.dims = {8, 8};
  row.view.strides = {0, 1};
  Call(0, {row, b_.Write(y_)});
  Account();
  EXPECT_EQ(Moved(0), kMatrix / 8 + kMatrix);
  EXPECT_EQ(Bound(0), kMatrix / 8 + kMatrix);
}

// Partial sums and the like: moved twice, needed never.
TEST_F(TrafficTest, WhatStaysInsideAGroupIsNotUnavoidable) {
  Call(7, {b_.Read(x_), b_.Write(t_)});
  Call(7, {b_.Read(t_), b_.Write(y_)});
  Account();
  EXPECT_EQ(f_->ops[0].group, f_->ops[1].group);
  EXPECT_EQ(Moved(0) + Moved(1), 4 * kMatrix);
  EXPECT_EQ(Bound(0), kMatrix);
  EXPECT_EQ(Bound(1), kMatrix);
}

TEST_F(TrafficTest, TwoGroupsHandOverThroughMemory) {
  Call(0, {b_.Read(x_), b_.Write(t_)});
  Call(0, {b_.Read(t_), b_.Write(y_)});
  Account();
  EXPECT_NE(f_->ops[0].group, f_->ops[1].group);
  EXPECT_EQ(Bound(0) + Bound(1), 4 * kMatrix);
}

TEST_F(TrafficTest, AReaderOutsideMakesAnOutputOfIt) {
  Call(7, {b_.Read(x_), b_.Write(t_)});
  Call(7, {b_.Read(t_), b_.Write(y_)});
  Call(0, {b_.Read(t_), b_.Write(z_)});
  Account();
  EXPECT_EQ(Bound(0), 2 * kMatrix);
  EXPECT_EQ(Bound(1), kMatrix);
}

// Both calls of a group read x: the second does so in vain, as does a write that nobody reads.
TEST_F(TrafficTest, ReadingAgainInTheGroupAndDeadWritesAreFlagged) {
  Call(7, {b_.Read(x_), b_.Write(y_)});
  Call(7, {b_.Read(x_), b_.Write(t_)});
  Account();
  EXPECT_EQ(Moved(1), 2 * kMatrix);
  EXPECT_EQ(Bound(1), 0);
}

// The buffer of a value that nobody reads is taken by another group: its reader is not ours.
TEST_F(TrafficTest, AnOverwrittenValueIsNotNeeded) {
  Call(0, {b_.Read(x_), b_.Write(t_)});
  Call(0, {b_.Read(x_), b_.Write(t_)});
  Call(0, {b_.Read(t_), b_.Write(y_)});
  Account();
  EXPECT_EQ(Bound(0), kMatrix);
  EXPECT_EQ(Bound(1), 2 * kMatrix);
}

TEST_F(TrafficTest, AddingReadsAndWrites) {
  Call(0, {b_.Read(x_), b_.Add(y_)});
  Account();
  EXPECT_EQ(Moved(0), 3 * kMatrix);
  EXPECT_EQ(Bound(0), 3 * kMatrix);
}

std::vector<std::string> Files() {
  std::vector<std::string> files;
  const std::string root = std::string(HYPER_SOURCE_DIR) + "/tests/lower/fusion";
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.path().extension() == ".hir") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class FusionTest : public ::testing::TestWithParam<std::string> {};

TEST_P(FusionTest, Checks) {
  std::ifstream in(GetParam());
  std::stringstream text;
  text << in.rdbuf();
  const auto file = hyper::testing::ReadTestFile(text.str());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ(file->runs, std::vector<std::string>{"lower"});
  ASSERT_FALSE(file->checks.empty());
  const auto module = ir::Parse(text.str(), GetParam());
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const auto lowered = Lower(*module, {});
  ASSERT_TRUE(lowered.ok()) << lowered.status().ToString();
  const Status checks = hyper::testing::RunChecks(file->checks, Print(*lowered));
  EXPECT_TRUE(checks.ok()) << checks.message() << Print(*lowered);
}

INSTANTIATE_TEST_SUITE_P(Files, FusionTest, ::testing::ValuesIn(Files()), [](const auto& info) {
  return std::filesystem::path(info.param).stem().string();
});

}  // namespace
}  // namespace hyper::lower
