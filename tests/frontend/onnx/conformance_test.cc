// Runs ONNX's node tests through the importer and the reference kernels. What cannot be imported is
// listed in unsupported_nodes.txt; a case that is not listed must pass, a listed one must still be
// refused (HYPER_UPDATE_GOLDEN=1 rewrites the list).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "frontend/onnx/import.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/load.h"
#include "ir/reference/reference.h"
#include "ir/text.h"

namespace hyper::onnx_frontend {
namespace {

namespace fs = std::filesystem;

// Their expected outputs come from a random generator of their own.
const std::set<std::string> kRandomCases = {
    "test_training_dropout", "test_training_dropout_default", "test_training_dropout_default_mask",
    "test_training_dropout_mask"};

// Their expected outputs carry rounding errors of their own where the exact value is 0: absolute
// differences up to 1e-8 of the largest element are of that kind.
const std::set<std::string> kRoundedCases = {"test_dft_inverse", "test_dft_inverse_opset19"};

// Wrong in the distribution's ONNX: computed with an epsilon of 0.01 that the node lacks
// (ONNX 1.22.0 has it).
const std::set<std::string> kWrongCases = {"old/test_adam_multiple"};

struct Outcome {
  enum Kind { kPassed, kUnsupported, kFailed } kind = kPassed;
  std::string text;
  std::string op;
};

std::optional<onnx::TensorProto> ReadPb(const fs::path& path, const onnx::ValueInfoProto& info) {
  std::ifstream in(path, std::ios::binary);
  onnx::TensorProto tensor;
  if (!in || !tensor.ParseFromIstream(&in)) return std::nullopt;
  // Older cases store the bits of bfloat16 as uint16.
  if (info.type().tensor_type().elem_type() == onnx::TensorProto::BFLOAT16 &&
      tensor.data_type() == onnx::TensorProto::UINT16) {
    tensor.set_data_type(onnx::TensorProto::BFLOAT16);
  }
  return tensor;
}

std::string Compare(const ir::HostTensor& got, const ir::HostTensor& want, bool rounded) {
  if (got.type() != want.type()) {
    return fmt::format("type {}, expected {}", got.type().ToString(), want.type().ToString());
  }
  double floor = 1e-7;
  for (int64_t i = 0; rounded && i < want.type().elements(); ++i) {
    floor = std::max(floor, 1e-8 * std::abs(want.ElementAsDouble(i)));
  }
  const bool half = got.type().dtype == ir::DType::kF16 || got.type().dtype == ir::DType::kBF16;
  for (int64_t i = 0; i < got.type().elements(); ++i) {
    if (!ir::IsFloat(got.type().dtype)) {
      if (got.ElementAsInt(i) != want.ElementAsInt(i)) {
        return fmt::format("element {} is {}, expected {}", i, got.ElementAsInt(i),
                           want.ElementAsInt(i));
      }
      continue;
    }
    const double a = got.ElementAsDouble(i);
    const double b = want.ElementAsDouble(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    // The suite's own tolerance; half types keep 8 to 11 bits.
    if (std::abs(a - b) <= (half ? 1e-2 : floor) + (half ? 2e-2 : 1e-3) * std::abs(b)) continue;
    return fmt::format("element {} is {}, expected {}", i, a, b);
  }
  return {};
}

enum class Known { kOperandsThatMustBe, kIntegers, kAll };

// Makes inputs whose values the importer needs initializers with the test's values.
void FixInputs(onnx::ModelProto* model, const std::map<std::string, onnx::TensorProto>& values,
               Known known) {
  std::set<std::string> fixed;
  for (const onnx::NodeProto& node : model->graph().node()) {
    const ImportTarget* target = ImportTargets().Find("", node.op_type());
    if (target == nullptr) continue;
    for (int slot : target->constant_inputs) {
      if (slot < node.input_size()) fixed.insert(node.input(slot));
    }
  }
  for (const auto& [name, value] : values) {
    const auto dtype = DTypeFromOnnx(value.data_type());
    const bool integer = dtype.has_value() && !ir::IsFloat(*dtype);
    if (fixed.count(name) == 0 && known != Known::kAll && !(known == Known::kIntegers && integer))
      continue;
    const auto& initializers = model->graph().initializer();
    if (std::any_of(initializers.begin(), initializers.end(),
                    [&](const auto& t) { return t.name() == name; })) {
      continue;
    }
    onnx::TensorProto* tensor = model->mutable_graph()->add_initializer();
    *tensor = value;
    tensor->set_name(name);
  }
}

Outcome RunWith(onnx::ModelProto model, const std::string& path, Known known,
                const std::map<std::string, onnx::TensorProto>& inputs,
                const std::vector<onnx::TensorProto>& expected) {
  Outcome outcome;
  FixInputs(&model, inputs, known);
  Diagnostics diagnostics;
  auto loaded = LoadModelProto(model, path, "", &diagnostics);
  auto unsupported = [&](const Status& status) {
    outcome.kind = Outcome::kUnsupported;
    outcome.text = status.message();
    for (const Diagnostic& d : diagnostics.items()) {
      if (d.severity == Severity::kError) {
        outcome.text = d.message;
        break;
      }
    }
    return outcome;
  };
  if (!loaded.ok()) return unsupported(loaded.status());
  ImportOptions options;
  options.literal_modes = true;
  auto imported = Import(**loaded, options, &diagnostics);
  if (!imported.ok()) return unsupported(imported.status());
  const ir::Function& eval = *imported->forward.module.Find("eval");
  auto fail = [&](std::string text) {
    outcome.kind = Outcome::kFailed;
    outcome.text = std::move(text);
    return outcome;
  };
  if (Status s = ir::Verify(imported->forward.module); !s.ok()) return fail(s.message());
  std::vector<ir::HostTensor> arguments;
  for (const ir::Argument& a : eval.arguments()) {
    if (a.kind == ir::ArgumentKind::kInput) {
      auto value = ReadTensor(inputs.at(a.name), nullptr, nullptr);
      if (!value.ok()) return fail(value.status().message());
      // CastLike reads the type of this operand alone, and older cases store other data for it.
      if (a.name == "like") value = ir::HostTensor::Zeros(eval.type(a.value));
      if (value->type() != eval.type(a.value))
        return fail("the data of input " + a.name + " has another type");
      arguments.push_back(*value);
    } else {
      arguments.push_back(imported->forward.module.FindTensor(a.name)->initial);
    }
  }
  auto results = ir::Evaluate(eval, arguments);
  if (!results.ok()) return fail(results.status().message());
  if (results->size() != expected.size()) return fail("another number of outputs");
  for (size_t i = 0; i < expected.size(); ++i) {
    auto want = ReadTensor(expected[i], nullptr, nullptr);
    if (!want.ok()) return fail(want.status().message());
    const std::string difference = Compare((*results)[i], *want, kRoundedCases.count(path) > 0);
    if (!difference.empty()) return fail(fmt::format("output {}: {}", i, difference));
  }
  return outcome;
}

std::optional<Outcome> RunCase(const fs::path& folder) {
  onnx::ModelProto model;
  std::ifstream in(folder / "model.onnx", std::ios::binary);
  if (!in || !model.ParseFromIstream(&in)) return std::nullopt;
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty() && import.version() < kMinOpset) return std::nullopt;
  }
  std::string op = model.graph().node_size() > 0 ? model.graph().node(0).op_type() : "";
  const std::string name = folder.filename().string();
  if (name.ends_with("_expanded") || name.find("_expanded_ver") != std::string::npos)
    op += " (expanded)";
  Outcome outcome;
  outcome.op = op;
  const fs::path data = folder / "test_data_set_0";
  std::map<std::string, onnx::TensorProto> inputs;
  for (int i = 0; i < model.graph().input_size(); ++i) {
    const auto& input = model.graph().input(i);
    auto tensor = ReadPb(data / fmt::format("input_{}.pb", i), input);
    if (!input.type().has_tensor_type() || !tensor.has_value()) {
      outcome.kind = Outcome::kUnsupported;
      outcome.text = RefusalMessage(Refusal::kSequences, "an input is not a tensor");
      return outcome;
    }
    inputs[input.name()] = *tensor;
  }
  std::vector<onnx::TensorProto> expected;
  for (int i = 0; i < model.graph().output_size(); ++i) {
    auto tensor = ReadPb(data / fmt::format("output_{}.pb", i), model.graph().output(i));
    if (!model.graph().output(i).type().has_tensor_type() || !tensor.has_value()) {
      outcome.kind = Outcome::kUnsupported;
      outcome.text = RefusalMessage(Refusal::kSequences, "an output is not a tensor");
      return outcome;
    }
    expected.push_back(*tensor);
  }
  for (Known known : {Known::kOperandsThatMustBe, Known::kIntegers, Known::kAll}) {
    outcome = RunWith(model, folder.filename().string(), known, inputs, expected);
    outcome.op = op;
    if (outcome.kind != Outcome::kUnsupported) break;
  }
  return outcome;
}

std::string GoldenPath() {
  return std::string(HYPER_SOURCE_DIR) + "/tests/frontend/onnx/unsupported_nodes.txt";
}

std::set<std::string> ReadGolden() {
  std::set<std::string> lines;
  std::ifstream in(GoldenPath());
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') lines.insert(line.substr(0, line.find('\t')));
  }
  return lines;
}

TEST(OnnxConformance, NodeTests) {
  std::map<std::string, Outcome> outcomes;
  std::map<std::string, int> of_op;
  std::map<std::string, int> unsupported_of_op;
  int random = 0;
  for (const auto& [label, root] :
       std::vector<std::pair<std::string, std::string>>{{"old", HYPER_NODE_TESTS_OLD},
                                                        {"new", HYPER_NODE_TESTS_NEW},
                                                        {"simple", HYPER_SIMPLE_TESTS}}) {
    ASSERT_TRUE(fs::is_directory(root)) << root << " is missing; run scripts/setup.sh";
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(root)) folders.push_back(entry.path());
    std::sort(folders.begin(), folders.end());
    const char* only = std::getenv("HYPER_NODE_TEST");
    for (const fs::path& folder : folders) {
      const std::string name = folder.filename().string();
      if (only != nullptr && name.find(only) == std::string::npos) continue;
      if (kWrongCases.count(label + "/" + name) > 0) continue;
      if (kRandomCases.count(name) > 0) {
        ++random;
        continue;
      }
      const std::optional<Outcome> outcome = RunCase(folder);
      if (!outcome.has_value()) continue;
      outcomes[label + "/" + name] = *outcome;
      ++of_op[outcome->op];
      if (outcome->kind == Outcome::kUnsupported) ++unsupported_of_op[outcome->op];
    }
  }
  int passed = 0;
  std::map<std::string, std::string> refused;  // "op X" or "case Y" -> reason
  std::vector<std::string> failed;
  for (const auto& [name, outcome] : outcomes) {
    if (outcome.kind == Outcome::kPassed) ++passed;
    if (outcome.kind == Outcome::kFailed)
      failed.push_back(name + " (" + outcome.op + "): " + outcome.text);
    if (outcome.kind != Outcome::kUnsupported) continue;
    const std::optional<Refusal> why = RefusalOf(outcome.text);
    const bool type = why == Refusal::kElementTypes || why == Refusal::kStrings;
    const bool whole = unsupported_of_op[outcome.op] == of_op[outcome.op];
    std::string reason = outcome.text;
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    const std::string key = whole  ? "op " + outcome.op
                            : type ? "types of " + outcome.op
                                   : "case " + name;
    refused.emplace(key, type && !whole ? std::string(RefusalText(*why)) : reason);
  }
  int refused_cases = 0;
  for (const auto& [op, count] : unsupported_of_op) refused_cases += count;
  std::cout << fmt::format(
      "node tests: {} passed, {} refused, {} failed, {} random ones left out\n", passed,
      refused_cases, failed.size(), random);
  for (const std::string& line : failed) ADD_FAILURE() << line;
  if (std::getenv("HYPER_NODE_TEST") != nullptr) {
    for (const auto& [key, reason] : refused) std::cout << key << ": " << reason << "\n";
    return;
  }
  if (std::getenv("HYPER_UPDATE_GOLDEN") != nullptr) {
    std::ofstream out(GoldenPath());
    out << "# Node tests of ONNX that the importer refuses, by op where it refuses all of them.\n";
    for (const auto& [key, reason] : refused) out << key << "\t" << reason << "\n";
    return;
  }
  std::set<std::string> now;
  for (const auto& [key, reason] : refused) now.insert(key);
  EXPECT_EQ(now, ReadGolden());
  EXPECT_GT(passed, 1500);
}

}  // namespace
}  // namespace hyper::onnx_frontend
