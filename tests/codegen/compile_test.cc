// Placed module -> emitter -> compiler -> program -> bundle -> loaded kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/checker.h"
#include "codegen/compile.h"
#include "ir/builder.h"
#include "tests/codegen/codegen_fixture.h"

namespace hyper::codegen {
namespace {

using hyper::testing::LoweredBuilder;
using hyper::testing::TestFolder;
using lower::Storage;

lower::GeneratedKernel AddKernel(const ir::TensorType& type) {
  lower::GeneratedKernel kernel;
  kernel.form = "map";
  ir::Builder builder(&kernel.body);
  const ir::ValueId a = kernel.body.AddArgument(type, ir::ArgumentKind::kInput, "a");
  const ir::ValueId b = kernel.body.AddArgument(type, ir::ArgumentKind::kInput, "b");
  kernel.body.AddResult(builder.Binary(ir::ScalarOp::kAdd, a, b), "y");
  return kernel;
}

// Two calls of y = a + b on operands of one shape at different places.
lower::LoweredModule TwoSums() {
  LoweredBuilder b;
  const int x = b.Root("x", Storage::kInput, {5, 7});
  const int t = b.Temporary({5, 7});
  const int y = b.Root("y", Storage::kResult, {5, 7});
  lower::LoweredFunction& f = b.Function("eval");
  const ir::TensorType type{ir::DType::kF32, {5, 7}};
  LoweredBuilder::Call(f, "first", {b.Read(x), b.Read(x), b.Write(t)}, AddKernel(type));
  LoweredBuilder::Call(f, "second", {b.Read(t), b.Read(x), b.Write(y)}, AddKernel(type));
  f.results.push_back({"y", b.Read(y)});
  return std::move(b.module);
}

TEST(CompileTest, EqualKernelsAreCompiledOnceAndRun) {
  const auto placed = offload::Place(TwoSums(), {});
  ASSERT_TRUE(placed.ok()) << placed.status().ToString();
  std::vector<std::vector<std::string>> symbols;
  const auto compiled = CompileCpuKernels(*placed, {.march = "x86-64"}, &symbols);
  ASSERT_TRUE(compiled.ok()) << compiled.status().ToString();
  ASSERT_EQ(symbols.size(), 1u);
  ASSERT_EQ(symbols[0].size(), 2u);
  EXPECT_EQ(symbols[0][0], symbols[0][1]);
  auto program = BuildProgram(*placed, symbols);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  ASSERT_TRUE(CheckProgram(*placed, *program).ok()) << CheckProgram(*placed, *program).ToString();

  BundleContent content;
  content.manifest.march = "x86-64";
  content.slot_data = *CollectSlotData(*placed, *program);
  content.program = *program;
  content.kernels_source = compiled->source;
  content.kernels_object = compiled->object;
  TestFolder folder;
  const Status written = WriteBundle(RealFileSystem(), folder / "job.bundle", content);
  ASSERT_TRUE(written.ok()) << written.ToString();
  const auto reader = BundleReader::Open(RealFileSystem(), folder / "job.bundle");
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const auto kernels = (*reader)->LoadKernels();
  ASSERT_TRUE(kernels.ok()) << kernels.status().ToString();

  std::vector<float> arena(static_cast<size_t>(program->arena_bytes()) / 4);
  char* const base = reinterpret_cast<char*>(arena.data());
  for (size_t i = 0; i < 35; ++i) arena[i] = static_cast<float>(i);  // x lies first
  for (const program::Instruction& call : program->subprograms(0).instructions()) {
    const auto kernel = (*kernels)->Find(call.generated().symbol());
    ASSERT_TRUE(kernel.ok());
    char* operands[] = {base + call.operands(0).offset(), base + call.operands(1).offset(),
                        base + call.operands(2).offset()};
    for (int64_t task = 0; task < 2; ++task) (*kernel)(operands, task, 2);
  }
  const auto* y =
      reinterpret_cast<const float*>(base + program->subprograms(0).results(0).offset());
  for (size_t i = 0; i < 35; ++i) EXPECT_EQ(y[i], 3.0f * static_cast<float>(i));
}

TEST(CompileTest, TwiceTheSameBytes) {
  const auto placed = offload::Place(TwoSums(), {});
  ASSERT_TRUE(placed.ok());
  std::vector<std::vector<std::string>> symbols;
  const auto first = CompileCpuKernels(*placed, {.march = "x86-64", .jobs = 1}, &symbols);
  const auto second = CompileCpuKernels(*placed, {.march = "x86-64", .jobs = 4}, &symbols);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(first->object == second->object);
}

TEST(CompileTest, EmitterErrorsNameTheOp) {
  lower::LoweredModule module = TwoSums();
  std::get<lower::GeneratedKernel>(module.functions[0].ops[1].kernel).form = "no such form";
  const auto placed = offload::Place(std::move(module), {});
  ASSERT_TRUE(placed.ok());
  std::vector<std::vector<std::string>> symbols;
  EXPECT_THAT(CompileCpuKernels(*placed, {}, &symbols).status().message(),
              ::testing::HasSubstr("@eval op 1 (second)"));
}

}  // namespace
}  // namespace hyper::codegen
