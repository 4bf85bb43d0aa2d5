// Trained models as they lie in PyPI packages (scripts/setup.sh fetches them): each compiles for
// training as it is and runs five steps.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/e2e/harness.h"

namespace hyper::e2e {
namespace {

struct Column {
  std::string name;
  std::string dtype;  // of the file: <f4 or <i4
  std::vector<int64_t> dims;
  int range;  // values are below it; floats are a tenth of a percent of it
};

struct RealFile {
  std::string name;
  std::map<std::string, int64_t> dims;
  std::string prediction;
  std::vector<Column> columns;  // inputs and targets, first dim: rows
};

constexpr int kSteps = 5;

// Random rows, the same in every run.
void WriteNpy(const std::string& path, const Column& column) {
  std::string shape;
  int64_t count = 1;
  for (const int64_t dim : column.dims) {
    shape += fmt::format("{}, ", dim);
    count *= dim;
  }
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   column.dtype, shape);
  header.resize((header.size() + 10) / 64 * 64 + 64 - 10 - 1, ' ');
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  out << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(header.size() % 256)
      << static_cast<char>(header.size() / 256) << header;
  std::mt19937 random(5);
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<int32_t>(random() % static_cast<uint32_t>(column.range));
    const auto single = static_cast<float>(value) / 1000;
    out.write(column.dtype == "<i4" ? reinterpret_cast<const char*>(&value)
                                    : reinterpret_cast<const char*>(&single),
              4);
  }
}

std::vector<RealFile> Files() {
  return {
      {"magika",
       {{"unk__214", 2}},
       "target_label",
       {{"bytes", "<i4", {10, 2048}, 257}, {"goal", "<f4", {10, 214}, 1000}}},
      {"angle",
       {{"x.0", 2}, {"?", 48}},
       "save_infer_model/scale_0.tmp_1",
       {{"x", "<f4", {10, 3, 48, 48}, 1000}, {"goal", "<f4", {10, 2}, 1000}}},
      {"pitch",
       {{"unk__749", 1}},
       "StatefulPartitionedCall:1",
       {{"serving_default_input_2:0", "<f4", {5, 43844, 1}, 1000},
        {"goal", "<f4", {5, 172, 88}, 1000}}},
  };
}

class RealFiles : public testing::TestWithParam<RealFile> {};

TEST_P(RealFiles, TrainFiveSteps) {
  const RealFile& file = GetParam();
  const std::string folder = fmt::format("{}hyper_real_{}", testing::TempDir(), file.name);
  std::filesystem::create_directories(folder);
  std::string inputs;
  for (size_t i = 0; i < file.columns.size(); ++i) {
    const std::string name = fmt::format("{}.npy", i);
    WriteNpy(folder + "/" + name, file.columns[i]);
    inputs += fmt::format("    '{}': {{file: '{}'}}\n", file.columns[i].name, name);
  }
  std::string dims;
  for (const auto& [name, extent] : file.dims) dims += fmt::format("'{}': {}, ", name, extent);
  const std::string model = fmt::format("{}/{}.onnx", HYPER_REAL_FILES, file.name);
  const std::string strategy = fmt::format(R"(version: 1
model: {{dims: {{{}}}}}
train:
  loss: {{kind: mse, prediction: '{}', target: goal}}
  optimizer: {{kind: momentum, lr: 1e-3, momentum: 0.9}}
  precision: fp32
  micro_batches: 1
data:
  kind: npy
  path: {}
  inputs:
{}run: {{steps: {}}}
)",
                                           dims, file.prediction, folder, inputs, kSteps);
  const auto bundle = CompileToBundle("real_" + file.name, model, strategy);
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  const auto result = Train(*bundle, {.steps = kSteps});
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ASSERT_EQ(result->losses.size(), static_cast<size_t>(kSteps));
  for (const double loss : result->losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_NE(result->losses.front(), result->losses.back());
  for (const double norm : result->grad_norms) EXPECT_TRUE(std::isfinite(norm));
  EXPECT_FALSE(result->gradients.empty());
  onnx_frontend::ImportOptions options;
  options.training = true;
  options.dims = file.dims;
  options.losses = {{.kind = ir::LossKind::kMse, .prediction = file.prediction, .target = "goal"}};
  ExpectEveryWeightTrains(model, options, *result);
  Figure("real_files", 1);
}

void PrintTo(const RealFile& file, std::ostream* out) { *out << file.name; }

INSTANTIATE_TEST_SUITE_P(Packages, RealFiles, testing::ValuesIn(Files()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hyper::e2e
