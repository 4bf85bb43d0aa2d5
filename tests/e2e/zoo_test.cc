// The zoo (tests/parity/README.md): fourteen architectures as both PyTorch exporters write them,
// against ten recorded steps of momentum SGD, and every float weight of each file accounted for.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "frontend/onnx/import.h"
#include "tests/e2e/harness.h"

namespace hyper::e2e {
namespace {

using nlohmann::json;

std::string Folder() { return std::string(HYPER_SOURCE_DIR) + "/tests/parity/zoo"; }

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string StrategyFor(const json& item, const std::vector<std::string>& weights,
                        const std::string& precision) {
  json inputs;
  for (const auto& [input, file] : item["inputs"].items()) inputs[input] = {{"file", file}};
  inputs["labels"] = {{"file", item["labels"]}};
  json strategy = {
      {"version", 1},
      {"train",
       {{"loss",
         {{"kind", "cross_entropy"},
          {"logits", item["logits"]},
          {"labels", "labels"},
          {"class_axis", -1}}},
        {"optimizer", item["optimizer"]},
        {"precision", precision},
        {"batchnorm", {{"running_variance", "unbiased"}}},
        {"micro_batches", 1}}},
      {"data", {{"kind", "npy"}, {"path", Folder()}, {"shuffle", false}, {"inputs", inputs}}},
      {"run", {{"steps", item["steps"]}}}};
  for (const json& name : item["freeze"]) {
    // Most of these fold away and are no weights at all.
    if (std::find(weights.begin(), weights.end(), name) == weights.end()) continue;
    strategy["model"]["parameters"]["freeze"].push_back(name);
  }
  // Evaluation-mode BatchNormalization (the dynamo exporter knows no other): statistics stay.
  if (!item["training"].get<bool>()) {
    for (const auto& [name, entry] : item["tensors"].items()) {
      if (!entry.contains("gradient")) strategy["model"]["parameters"]["freeze"].push_back(name);
    }
  }
  return strategy.dump(1);
}

double Digests(const std::map<std::string, std::vector<double>>& actual, const json& item,
               const std::string& field, std::string* worst) {
  double error = 0;
  for (const auto& [name, entry] : item["tensors"].items()) {
    if (!entry.contains(field)) continue;
    // Statistics of evaluation-mode norms stand still: they are no slots.
    if (!item["training"].get<bool>() && !entry.contains("gradient")) continue;
    const auto found = actual.find(name);
    if (found == actual.end()) {
      ADD_FAILURE() << name << " is missing";
      return 1;
    }
    const Digest wanted = DigestFromJson(entry[field]);
    const bool zero = field == "gradient" && entry["zero_gradient"].get<bool>();
    const double e =
        DigestError(DigestOf(found->second, static_cast<int>(wanted.projections.size())), wanted,
                    zero ? item["grad_norm"].get<double>() : 0);
    if (!(e <= error)) {
      error = e;
      *worst = name;
    }
  }
  return error;
}

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

class Zoo : public testing::TestWithParam<std::string> {
 protected:
  Zoo() : item_(json::parse(ReadFileOrDie(Folder() + "/" + GetParam() + ".json"))) {}

  std::string model_path() const { return Folder() + "/" + item_["model"].get<std::string>(); }

  std::string Bundle(const std::string& precision) const {
    const auto weights = WeightsOf(model_path());
    EXPECT_TRUE(weights.ok()) << weights.status().ToString();
    if (!weights.ok()) return {};
    auto bundle = CompileToBundle(fmt::format("zoo_{}_{}", GetParam(), precision), model_path(),
                                  StrategyFor(item_, *weights, precision));
    EXPECT_TRUE(bundle.ok()) << bundle.status().ToString();
    return bundle.ok() ? *bundle : std::string();
  }

  json item_;
};

TEST_P(Zoo, TenStepsMatchPyTorch) {
  const std::string exact_bundle = Bundle("fp64");
  ASSERT_FALSE(exact_bundle.empty());
  const int64_t steps = item_["steps"].get<int64_t>();
  const auto exact = Train(exact_bundle, {.steps = steps});
  ASSERT_TRUE(exact.ok()) << exact.status().ToString();
  ASSERT_EQ(exact->losses.size(), static_cast<size_t>(steps));
  double losses = 0;
  for (size_t s = 0; s < exact->losses.size(); ++s) {
    losses = std::max(losses, RelativeError(exact->losses[s], item_["losses"][s].get<double>()));
  }
  EXPECT_LE(losses, 1e-8);
  std::string worst;
  const double final_values = Digests(exact->tensors, item_, "final", &worst);
  EXPECT_LE(final_values, 1e-8) << worst;
  Figure("zoo_runs", 1);
  Measured("zoo_fp64_losses_10", losses);
  Measured("zoo_fp64_final_tensors", final_values);

  const auto first = Train(exact_bundle, {.steps = 1});
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const double digests = Digests(first->gradients, item_, "gradient", &worst);
  EXPECT_LE(digests, 1e-8) << worst;

  const std::string bundle = Bundle("fp32");
  ASSERT_FALSE(bundle.empty());
  const auto single = Train(bundle, {.steps = 1});
  ASSERT_TRUE(single.ok()) << single.status().ToString();
  double gradients = 0;
  for (const auto& [name, wanted] : first->gradients) {
    ASSERT_TRUE(single->gradients.count(name)) << name;
    const std::vector<double>& actual = single->gradients.at(name);
    ASSERT_EQ(actual.size(), wanted.size()) << name;
    std::vector<double> difference(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) difference[i] = actual[i] - wanted[i];
    const bool zero = item_["tensors"][name]["zero_gradient"].get<bool>();
    if (!zero) EXPECT_GT(Norm(actual), 0) << name;
    const double error =
        Norm(difference) / (zero ? item_["grad_norm"].get<double>() : Norm(wanted));
    if (!(error <= gradients)) {
      gradients = error;
      worst = name;
    }
  }
  EXPECT_LE(gradients, 1e-5) << worst;
  Measured("zoo_fp32_gradients_step_1", gradients);

  // The twin: gradients 1 % too large must show.
  TrainOptions fault{.steps = steps};
  fault.fault.gradient_factor = 1.01;
  const auto broken = Train(exact_bundle, fault);
  ASSERT_TRUE(broken.ok()) << broken.status().ToString();
  EXPECT_GT(Digests(broken->tensors, item_, "final", &worst), 1e-8);
}

// Without any rule in the strategy: what inspect reports for every float tensor of the file.
TEST_P(Zoo, EveryWeightTrainsOrInspectSaysWhyNot) {
  Diagnostics diagnostics;
  const auto model = onnx_frontend::LoadModel(model_path(), {}, &diagnostics);
  ASSERT_TRUE(model.ok()) << diagnostics.Render();
  onnx_frontend::ImportOptions options;
  options.training = true;
  onnx_frontend::LossSpec loss;
  loss.kind = ir::LossKind::kCrossEntropy;
  loss.prediction = item_["logits"];
  loss.target = "labels";
  options.losses.push_back(loss);
  const onnx_frontend::ParameterPlan plan =
      onnx_frontend::PlanParameters(**model, options, &diagnostics);
  std::map<std::string, bool> trained;
  for (const onnx_frontend::ParameterDecision& tensor : plan.tensors) {
    EXPECT_FALSE(tensor.reason.empty()) << tensor.name;
    trained[tensor.name] = !tensor.constant && tensor.kind == ir::ArgumentKind::kParameter;
  }
  int count = 0;
  for (const auto& [name, entry] : item_["tensors"].items()) {
    if (!entry.contains("gradient")) continue;
    ++count;
    ASSERT_TRUE(trained.count(name)) << name;
    EXPECT_TRUE(trained.at(name)) << name << ": " << plan.Find(name)->reason;
    // A gradient that is zero in exact arithmetic (an attention key's bias) is no lost one.
    if (!entry["zero_gradient"].get<bool>()) {
      EXPECT_GT(entry["gradient"]["norm"].get<double>(), 0) << name;
    }
  }
  EXPECT_GT(count, 0);
}

INSTANTIATE_TEST_SUITE_P(Recorded, Zoo, testing::ValuesIn(Names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

}  // namespace
}  // namespace hyper::e2e
