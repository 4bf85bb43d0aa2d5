// Workspaces of library kernels in the lowered form: one operand per call that asks for one, behind
// the others, in a temporary that no other call touches.
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "lower/lowered.h"

namespace hyper::lower {
namespace {

using ir::ArgumentKind;
using ir::DType;
using ir::ValueId;

// eval: two products and a convolution of f32.
ir::Module TwoProductsAndAConvolution() {
  ir::Function f("eval");
  ir::Builder b(&f);
  const ValueId x = f.AddArgument({DType::kF32, {4, 8}}, ArgumentKind::kInput, "x");
  const ValueId w = f.AddArgument({DType::kF32, {8, 8}}, ArgumentKind::kParameter, "w");
  const ValueId image = f.AddArgument({DType::kF32, {4, 3, 8, 8}}, ArgumentKind::kInput, "image");
  const ValueId k = f.AddArgument({DType::kF32, {6, 3, 3, 3}}, ArgumentKind::kParameter, "k");
  const ValueId h = b.Dot("mk,kn->mn", x, w);
  f.AddResult(b.Dot("mk,kn->mn", h, w), "y");
  f.AddResult(b.Add1("conv", {image, k},
                     {{"strides", ir::Dims{1, 1}},
                      {"pads_low", ir::Dims{1, 1}},
                      {"pads_high", ir::Dims{1, 1}},
                      {"dilations", ir::Dims{1, 1}},
                      {"groups", int64_t{1}}}),
              "z");
  ir::Module module;
  module.functions.push_back(std::move(f));
  return module;
}

LoweredModule MustLower(const LowerOptions& options) {
  Result<LoweredModule> lowered = Lower(TwoProductsAndAConvolution(), options);
  EXPECT_TRUE(lowered.ok()) << lowered.status().ToString();
  return lowered.ok() ? *std::move(lowered) : LoweredModule{};
}

TEST(Workspace, EveryLibraryCallGetsWhatTheTargetAsksFor) {
  LowerOptions options;
  int asked = 0;
  options.workspace = [&](const LibraryKernel& kernel,
                          std::span<const Operand> operands) -> Result<int64_t> {
    ++asked;
    EXPECT_EQ(operands.size(), 3u);
    EXPECT_TRUE(kernel.attributes.Has(kernel.op == "dot" ? "spec" : "strides"));
    return kernel.op == "dot" ? 0 : 1000;
  };
  const LoweredModule module = MustLower(options);
  EXPECT_EQ(asked, 3);
  std::map<int, int> users;  // root -> calls
  for (const LoweredOp& op : module.functions[0].ops) {
    for (const Operand& operand : op.operands) ++users[operand.root.index];
  }
  for (const LoweredOp& op : module.functions[0].ops) {
    const auto* library = std::get_if<LibraryKernel>(&op.kernel);
    if (library == nullptr) continue;
    if (library->op == "dot") {
      EXPECT_EQ(op.operands.size(), 3u);
      continue;
    }
    ASSERT_EQ(op.operands.size(), 4u);
    const Operand& workspace = op.operands.back();
    const Root& root = module.roots[static_cast<size_t>(workspace.root.index)];
    EXPECT_EQ(workspace.access, Access::kWorkspace);
    EXPECT_EQ(root.storage, Storage::kTemporary);
    EXPECT_EQ(root.elements * ir::DTypeBytes(root.dtype), 1000);
    EXPECT_EQ(users[workspace.root.index], 1);
    // Scratch is no traffic between ops.
    EXPECT_EQ(op.bytes_moved, (4 * 3 * 64 + 6 * 27 + 4 * 6 * 64) * 4);
  }
}

TEST(Workspace, NoneWithoutAQuery) {
  for (const LoweredOp& op : MustLower({}).functions[0].ops) {
    for (const Operand& operand : op.operands) EXPECT_NE(operand.access, Access::kWorkspace);
  }
}

TEST(Workspace, ErrorsOfTheQueryComeThrough) {
  LowerOptions options;
  options.workspace = [](const LibraryKernel&, std::span<const Operand>) -> Result<int64_t> {
    return Unimplemented("no such kernel here");
  };
  const auto lowered = Lower(TwoProductsAndAConvolution(), options);
  EXPECT_EQ(lowered.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(lowered.status().message(), ::testing::HasSubstr("no such kernel here"));
}

}  // namespace
}  // namespace hyper::lower
