#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/compile.h"
#include "codegen/validate.h"
#include "tests/codegen/codegen_fixture.h"

namespace hyper::codegen {
namespace {

using hyper::testing::LoweredBuilder;
using hyper::testing::MakeToy;
using hyper::testing::Toy;
using lower::Storage;
using ::testing::HasSubstr;

const program::SubProgram& Sub(const program::Program& program, const std::string& name) {
  for (const program::SubProgram& sub : program.subprograms()) {
    if (sub.name() == name) return sub;
  }
  ADD_FAILURE() << name;
  return program.subprograms(0);
}

TEST(ProgramBuilderTest, BuildsAValidProgram) {
  const Toy toy = MakeToy();
  EXPECT_EQ(toy.program.format_version(), kBundleFormatVersion);
  EXPECT_TRUE(toy.program.training());
  EXPECT_EQ(toy.program.micro_batch(), hyper::testing::kRows);
  EXPECT_EQ(toy.program.compute_dtype(), program::F32);
  EXPECT_EQ(toy.program.regions_size(), 11);
  EXPECT_EQ(toy.program.buckets_size(), 1);
  EXPECT_EQ(Sub(toy.program, "step_first").temporary_peak(),
            toy.placed.functions[0].temporary_peak);
  for (const program::Slot& slot : toy.program.slots()) {
    EXPECT_NE(slot.storage(), program::RESULT);
    EXPECT_NE(slot.storage(), program::TEMPORARY);
  }
}

TEST(ProgramBuilderTest, OperandsCarryTheBytesTheyTouch) {
  LoweredBuilder b;
  const int x = b.Root("x", Storage::kInput, {4, 6});
  const int y = b.Root("y", Storage::kResult, {4, 6});
  lower::Operand rows = b.Read(x);  // rows 3 and 1, in this order
  rows.view = {{ir::DType::kF32, {2, 6}}, {-12, 1}, 18};
  lower::Operand row = b.Read(x);  // row 2, repeated
  row.view = {{ir::DType::kF32, {2, 6}}, {0, 1}, 12};
  lower::Operand none = b.Read(x);  // an empty slice behind the end
  none.view = {{ir::DType::kF32, {0, 6}}, {6, 1}, 24};
  lower::LoweredFunction& f = b.Function("eval");
  b.Call(f, "op", {rows, row, none, b.Write(y)},
         lower::ReferenceKernel{"concat", {{"axis", int64_t{0}}}});
  f.results.push_back({"y", b.Read(y)});
  const Toy toy = MakeToy(std::move(b.module));
  const program::Instruction& call = toy.program.subprograms(0).instructions(0);
  const int64_t base = toy.placed.offsets[0];
  EXPECT_EQ(call.operands(0).offset(), base + 18 * 4);
  EXPECT_EQ(call.operands(0).begin(), base + 6 * 4);
  EXPECT_EQ(call.operands(0).end(), base + 24 * 4);
  EXPECT_EQ(call.operands(1).begin(), base + 12 * 4);
  EXPECT_EQ(call.operands(1).end(), base + 18 * 4);
  EXPECT_EQ(call.operands(2).begin(), call.operands(2).end());
  EXPECT_EQ(call.operands(3).access(), program::WRITE);
  EXPECT_EQ(toy.program.subprograms(0).results(0).name(), "y");
  EXPECT_TRUE(ValidateProgram(toy.program, {}).ok());
}

TEST(ProgramBuilderTest, AttributesKeepTheirKind) {
  lower::LibraryKernel kernel{"onednn.conv", "conv", {}};
  kernel.attributes.Set("b", true);
  kernel.attributes.Set("d", ir::Dims{2, 3});
  kernel.attributes.Set("f", 0.5);
  kernel.attributes.Set("i", int64_t{7});
  kernel.attributes.Set("s", std::string("same"));
  kernel.attributes.Set("t", ir::DType::kI64);
  kernel.attributes.Set("v", ir::HostTensor::ScalarI64(5));
  LoweredBuilder b;
  const int y = b.Root("y", Storage::kResult, {2});
  b.Call(b.Function("eval"), "op", {b.Write(y)}, kernel);
  const Toy toy = MakeToy(std::move(b.module));
  const auto& attributes = toy.program.subprograms(0).instructions(0).library().attributes();
  ASSERT_EQ(attributes.size(), 7);
  EXPECT_TRUE(attributes[0].bool_value());
  EXPECT_EQ(attributes[1].dims_value().values(1), 3);
  EXPECT_EQ(attributes[2].float_value(), 0.5);
  EXPECT_EQ(attributes[3].int_value(), 7);
  EXPECT_EQ(attributes[4].string_value(), "same");
  EXPECT_EQ(attributes[5].dtype_value(), program::I64);
  EXPECT_EQ(attributes[6].tensor_value().size(), 8u);
  // No op has such attributes.
  EXPECT_EQ(ValidateProgram(toy.program, {}).code(), StatusCode::kDataLoss);
}

TEST(ProgramBuilderTest, ConstantsOfOneNameStayApart) {
  LoweredBuilder b;
  lower::LoweredFunction f{.name = "eval"};
  std::vector<lower::Operand> operands;
  for (int i = 0; i < 2; ++i) {
    const int c = b.Root("same", Storage::kConstant, {2});
    b.module.roots.back().constant = hyper::testing::Ramp({2}, static_cast<float>(i));
    operands.push_back(b.Read(c));
  }
  const int y = b.Root("y", Storage::kResult, {2});
  operands.push_back(b.Write(y));
  b.Call(f, "op", operands);
  b.module.functions.push_back(std::move(f));
  const Toy toy = MakeToy(std::move(b.module));
  ASSERT_EQ(toy.program.slots_size(), 2);
  EXPECT_NE(toy.program.slots(0).name(), toy.program.slots(1).name());
  const auto data = CollectSlotData(toy.placed, toy.program);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ((*data)[1].as<float>()[1], 1.0f);
}

TEST(ProgramBuilderTest, RefusesViewsBeyondTheirRoot) {
  lower::LoweredModule module = hyper::testing::ToyModule();
  module.functions[0].ops[0].operands[0].view.offset = 1;
  const auto placed = offload::Place(std::move(module), {});
  ASSERT_TRUE(placed.ok());
  const auto program = BuildProgram(*placed, hyper::testing::ToySymbols(*placed));
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.status().code(), StatusCode::kInternal);
  EXPECT_THAT(program.status().message(), HasSubstr("of 'x' touches bytes [4, 100) of 96"));
}

TEST(ProgramBuilderTest, RefusesGeneratedOpsWithoutSymbol) {
  const auto placed = offload::Place(hyper::testing::ToyModule(), {});
  ASSERT_TRUE(placed.ok());
  EXPECT_THAT(BuildProgram(*placed, {}).status().message(), HasSubstr("no symbol"));
}

TEST(ProgramBuilderTest, MissingInitialValuesAreNamed) {
  lower::LoweredModule module = hyper::testing::ToyModule();
  module.source.tensors.pop_back();
  const Toy toy = MakeToy(std::move(module));
  EXPECT_THAT(CollectSlotData(toy.placed, toy.program).status().message(),
              HasSubstr("no tensor 'block1.weight'"));
}

}  // namespace
}  // namespace hyper::codegen
