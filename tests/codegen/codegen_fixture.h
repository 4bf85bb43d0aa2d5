// A small complete bundle made by hand: two blocks of training, and @count with one generated
// kernel y = x + c (c broadcast over rows).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "codegen/bundle.h"
#include "codegen/compile.h"
#include "codegen/kernel_compiler.h"
#include "tests/offload/lowered_fixture.h"

namespace hyper::testing {

inline constexpr int64_t kRows = 4;
inline constexpr int64_t kColumns = 6;

inline ir::HostTensor Ramp(ir::Dims dims, float scale) {
  std::vector<float> values(static_cast<size_t>(ir::ElementCount(dims)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(i);
  return ir::HostTensor::FromVector(ir::DType::kF32, std::move(dims), values);
}

inline lower::LoweredModule ToyModule() {
  LoweredBuilder b;
  b.module = TrainingModule({kColumns, 5, 4}, kRows, false);
  for (const lower::Root& root : b.module.roots) {
    if (root.storage != lower::Storage::kParameter) continue;
    b.module.source.tensors.push_back(
        {.name = root.name, .type = root.logical, .initial = Ramp(root.logical.dims, 0.5f)});
  }
  int x = -1;
  for (size_t i = 0; i < b.module.roots.size(); ++i) {
    if (b.module.roots[i].storage == lower::Storage::kInput) x = static_cast<int>(i);
  }
  const int c = b.Root("c", lower::Storage::kConstant, {kColumns});
  b.module.roots[static_cast<size_t>(c)].constant = Ramp({kColumns}, 1.0f);
  const int y = b.Root("y", lower::Storage::kResult, {kRows, kColumns});
  lower::Operand broadcast = b.Read(c);
  broadcast.view = {{ir::DType::kF32, {kRows, kColumns}}, {0, 1}, 0};
  lower::LoweredFunction& count = b.Function("count");
  lower::GeneratedKernel kernel;
  kernel.form = "map";
  kernel.lower_bound_bytes = 2 * kRows * kColumns * 4 + kColumns * 4;
  LoweredBuilder::Call(count, "add", {b.Read(x), broadcast, b.Write(y)}, kernel);
  count.results.push_back({"y", b.Read(y)});
  return std::move(b.module);
}

inline codegen::KernelText ToyKernel() {
  const int64_t matrix = kRows * kColumns * 4;
  return {"k_toy",
          "extern \"C\" void k_toy(char* const* operands, int64_t task, int64_t tasks) {\n"
          "  const float* x = (const float*)operands[0];\n"
          "  const float* c = (const float*)operands[1];\n"
          "  float* y = (float*)operands[2];\n"
          "  for (int64_t r = 4 * task / tasks; r < 4 * (task + 1) / tasks; ++r)\n"
          "    for (int64_t i = 0; i < 6; ++i) y[6 * r + i] = x[6 * r + i] + c[i];\n"
          "}\n",
          {{0, matrix}, {0, kColumns * 4}, {0, matrix}}};
}

// Names for the generated ops of a placed toy module.
inline std::vector<std::vector<std::string>> ToySymbols(const offload::PlacedModule& placed) {
  std::vector<std::vector<std::string>> symbols;
  for (const lower::LoweredFunction& f : placed.module.functions) {
    symbols.emplace_back();
    for (const lower::LoweredOp& op : f.ops) {
      symbols.back().push_back(std::holds_alternative<lower::GeneratedKernel>(op.kernel) ? "k_toy"
                                                                                         : "");
    }
  }
  return symbols;
}

struct Toy {
  offload::PlacedModule placed;
  program::Program program;
};

inline Toy MakeToy(lower::LoweredModule module = ToyModule()) {
  Toy toy;
  Result<offload::PlacedModule> placed = offload::Place(std::move(module), {});
  EXPECT_TRUE(placed.ok()) << placed.status().ToString();
  if (!placed.ok()) return toy;
  toy.placed = *std::move(placed);
  Result<program::Program> program = codegen::BuildProgram(toy.placed, ToySymbols(toy.placed));
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  if (program.ok()) toy.program = *std::move(program);
  return toy;
}

// Compiled once per test program.
inline const codegen::CompiledKernels& ToyKernels() {
  static const codegen::CompiledKernels kernels = [] {
    Result<codegen::CompiledKernels> compiled =
        codegen::CompileKernelTexts("#include <cstdint>\n", {ToyKernel()}, {.march = "x86-64"});
    EXPECT_TRUE(compiled.ok()) << compiled.status().ToString();
    return compiled.ok() ? *std::move(compiled) : codegen::CompiledKernels{};
  }();
  return kernels;
}

inline codegen::BundleContent ToyBundle() {
  Toy toy = MakeToy();
  codegen::BundleContent content;
  content.manifest.producer = "hyperc test";
  content.manifest.model_name = "toy";
  content.manifest.march = "x86-64";
  content.manifest.cpu_features = {"sse2"};
  Result<std::vector<ir::HostTensor>> data = codegen::CollectSlotData(toy.placed, toy.program);
  EXPECT_TRUE(data.ok()) << data.status().ToString();
  if (data.ok()) content.slot_data = *std::move(data);
  content.program = std::move(toy.program);
  content.kernels_source = ToyKernels().source;
  content.kernels_object = ToyKernels().object;
  content.strategy_yaml = "version: 1\n";
  content.launch_json = "{}\n";
  content.module_text = "module\n";
  content.plan_json = "{}\n";
  content.model_onnx = "onnx";
  return content;
}

// A folder that disappears with the test.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern = ::testing::TempDir() + "/hyper-codegen-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace hyper::testing
