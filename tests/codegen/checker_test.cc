#include "codegen/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/codegen/codegen_fixture.h"

namespace hyper::codegen {
namespace {

using hyper::testing::LoweredBuilder;
using hyper::testing::MakeToy;
using hyper::testing::Toy;
using lower::Access;
using lower::Storage;
using ::testing::HasSubstr;

std::string Check(const Toy& toy) {
  const Status status = CheckProgram(toy.placed, toy.program);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInternal);
  return status.message();
}

program::SubProgram* Sub(Toy& toy, const std::string& name) {
  for (program::SubProgram& sub : *toy.program.mutable_subprograms()) {
    if (sub.name() == name) return &sub;
  }
  ADD_FAILURE() << name;
  return nullptr;
}

lower::LoweredFunction* Function(lower::LoweredModule& module, const std::string& name) {
  for (lower::LoweredFunction& f : module.functions) {
    if (f.name == name) return &f;
  }
  ADD_FAILURE() << name;
  return nullptr;
}

TEST(CheckerTest, AcceptsGoodPrograms) {
  EXPECT_EQ(Check(MakeToy()), "");
  EXPECT_EQ(Check(MakeToy(hyper::testing::TrainingModule({32, 32, 32, 32, 16, 16}, 8, true))), "");
}

TEST(CheckerTest, FindsOverlappingTemporaries) {
  Toy toy = MakeToy();
  // Move the second temporary of @step_first onto the first: places and program alike.
  std::vector<size_t> temporaries;
  for (size_t i = 0; i < toy.placed.module.roots.size(); ++i) {
    if (toy.placed.module.roots[i].storage == Storage::kTemporary) temporaries.push_back(i);
  }
  toy.placed.offsets[temporaries[1]] = toy.placed.offsets[temporaries[0]];
  toy.program = *BuildProgram(toy.placed, hyper::testing::ToySymbols(toy.placed));
  EXPECT_THAT(Check(toy), HasSubstr("which is alive"));
}

TEST(CheckerTest, FindsTemporariesOnPersistentData) {
  Toy toy = MakeToy();
  for (size_t i = 0; i < toy.placed.module.roots.size(); ++i) {
    if (toy.placed.module.roots[i].storage == Storage::kTemporary) toy.placed.offsets[i] = 0;
  }
  toy.program = *BuildProgram(toy.placed, hyper::testing::ToySymbols(toy.placed));
  EXPECT_THAT(Check(toy), HasSubstr("overlaps"));
}

TEST(CheckerTest, FindsOperandsOutsideTheirRoot) {
  Toy toy = MakeToy();
  program::Operand* o = Sub(toy, "eval")->mutable_instructions(0)->mutable_operands(2);
  o->set_begin(o->begin() - 4);
  EXPECT_THAT(Check(toy), HasSubstr("touches bytes"));
}

TEST(CheckerTest, FindsReadsBeforeWrites) {
  lower::LoweredModule module = hyper::testing::ToyModule();
  auto& ops = Function(module, "eval")->ops;
  std::swap(ops[0], ops[1]);  // the activation before its matmul
  EXPECT_THAT(Check(MakeToy(module)), HasSubstr("before it is written"));
}

TEST(CheckerTest, FindsAccumulationIntoNothing) {
  lower::LoweredModule module = hyper::testing::ToyModule();
  Function(module, "eval")->ops[0].operands[2].access = Access::kAccumulate;
  EXPECT_THAT(Check(MakeToy(module)), HasSubstr("before it is written"));
}

TEST(CheckerTest, FindsMissingResults) {
  lower::LoweredModule module = hyper::testing::ToyModule();
  Function(module, "eval")->ops.pop_back();
  EXPECT_THAT(Check(MakeToy(module)), HasSubstr("result 'logits' is never written"));
}

TEST(CheckerTest, AWorkspaceKeepsNothing) {
  lower::LoweredModule module = hyper::testing::ToyModule();
  auto& ops = Function(module, "eval")->ops;
  ops[1].operands[0].access = Access::kWorkspace;  // destroys what the matmul wrote
  lower::LoweredOp again = ops[1];
  again.operands[0].access = Access::kRead;
  ops.insert(ops.begin() + 2, again);
  EXPECT_THAT(Check(MakeToy(module)), HasSubstr("before it is written"));
}

TEST(CheckerTest, PartialWritesCoverExactlyTheirViews) {
  for (const bool both : {true, false}) {
    LoweredBuilder b;
    const int x = b.Root("x", Storage::kInput, {4, 3});
    const int t = b.Temporary({4, 6});
    const int y = b.Root("y", Storage::kResult, {4, 6});
    lower::LoweredFunction& f = b.Function("eval");
    for (int half = 0; half < (both ? 2 : 1); ++half) {
      lower::Operand part = b.Write(t);
      part.view = {{ir::DType::kF32, {4, 3}}, {6, 1}, 3 * half};
      b.Call(f, "concat", {b.Read(x), part});
    }
    b.Call(f, "copy", {b.Read(t), b.Write(y)});
    const std::string message = Check(MakeToy(std::move(b.module)));
    if (both) {
      EXPECT_EQ(message, "");
    } else {
      EXPECT_THAT(message, HasSubstr("before it is written"));
    }
  }
}

TEST(CheckerTest, FindsMarkerFaults) {
  const auto marker_at = [](program::SubProgram* sub) {
    for (int i = 0; i < sub->instructions_size(); ++i) {
      if (sub->instructions(i).has_marker()) return i;
    }
    return -1;
  };
  {
    Toy toy = MakeToy();
    program::SubProgram* sub = Sub(toy, "step_next");
    sub->mutable_instructions(marker_at(sub))->mutable_marker()->set_bucket(5);
    EXPECT_THAT(Check(toy), HasSubstr("unknown bucket"));
  }
  {  // one place too early: the last gradient is written behind it
    Toy toy = MakeToy();
    program::SubProgram* sub = Sub(toy, "step_first");
    const int at = marker_at(sub);
    sub->mutable_instructions()->SwapElements(at - 1, at);
    auto& ops = Function(toy.placed.module, "step_first")->ops;
    std::swap(ops[static_cast<size_t>(at) - 1], ops[static_cast<size_t>(at)]);
    EXPECT_THAT(Check(toy), HasSubstr("behind the marker of bucket 0"));
  }
  {  // none
    Toy toy = MakeToy();
    program::SubProgram* sub = Sub(toy, "step_first");
    const int at = marker_at(sub);
    sub->mutable_instructions()->DeleteSubrange(at, 1);
    auto& ops = Function(toy.placed.module, "step_first")->ops;
    ops.erase(ops.begin() + at);
    EXPECT_THAT(Check(toy), HasSubstr("has no marker"));
  }
  {  // twice
    Toy toy = MakeToy();
    program::SubProgram* sub = Sub(toy, "step_first");
    *sub->add_instructions() = sub->instructions(marker_at(sub));
    auto& ops = Function(toy.placed.module, "step_first")->ops;
    ops.push_back({.kernel = lower::MarkerKernel{}});
    EXPECT_THAT(Check(toy), HasSubstr("second marker"));
  }
}

}  // namespace
}  // namespace hyper::codegen
