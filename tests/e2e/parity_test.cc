// Training against PyTorch's recorded numbers (tests/parity/README.md), every case and optimizer:
// in fp64 mode losses and final parameters, in fp32 gradients and losses. Each check has a twin
// with a planted fault that must turn it red.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/e2e/harness.h"

namespace hyper::e2e {
namespace {

using nlohmann::json;

const std::string& DataFolder() {
  static const std::string folder = std::string(HYPER_SOURCE_DIR) + "/tests/parity/data";
  return folder;
}

const json& Manifest() {
  static const json manifest = json::parse(ReadFileOrDie(DataFolder() + "/manifest.json"));
  return manifest;
}

struct Case {
  std::string name;
  size_t index;
  size_t run;
  std::string optimizer;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (size_t c = 0; c < Manifest()["cases"].size(); ++c) {
    const json& item = Manifest()["cases"][c];
    for (size_t r = 0; r < item["runs"].size(); ++r) {
      cases.push_back({item["name"], c, r, item["runs"][r]["optimizer"]["kind"]});
    }
  }
  return cases;
}

// JSON is YAML: the manifest's values go into the strategy as they are.
std::string StrategyFor(const json& item, const json& run, const std::string& precision) {
  json inputs;
  for (const auto& [input, file] : item["inputs"].items()) inputs[input] = {{"file", file}};
  inputs["labels"] = {{"file", item["labels"]}};
  json loss = {{"kind", "cross_entropy"}, {"logits", item["logits"]}, {"labels", "labels"}};
  if (!item["ignore_index"].is_null()) loss["ignore_index"] = item["ignore_index"];
  json model = json::object();
  if (!item["dims"].empty()) model["dims"] = item["dims"];
  const auto weights = WeightsOf(DataFolder() + "/" + item["model"].get<std::string>());
  EXPECT_TRUE(weights.ok()) << weights.status().ToString();
  for (const json& name : item["freeze"]) {
    // Most of what the manifest lists folds away and is no weight at all.
    if (std::find(weights->begin(), weights->end(), name) == weights->end()) continue;
    model["parameters"]["freeze"].push_back(name);
  }
  json strategy = {
      {"version", 1},
      {"train",
       {{"loss", loss},
        {"optimizer", run["optimizer"]},
        {"precision", precision},
        {"batchnorm", {{"running_variance", "unbiased"}}},
        {"micro_batches", 1}}},
      {"data", {{"kind", "npy"}, {"path", DataFolder()}, {"shuffle", false}, {"inputs", inputs}}},
      {"run", {{"steps", item["steps"]}}}};
  if (!model.empty()) strategy["model"] = model;
  return strategy.dump(1);
}

class Parity : public testing::TestWithParam<Case> {
 protected:
  const json& item() const { return Manifest()["cases"][GetParam().index]; }
  const json& run() const { return item()["runs"][GetParam().run]; }
  json expected() const {
    return json::parse(ReadFileOrDie(DataFolder() + "/" + run()["expected"].get<std::string>()));
  }
  std::string Bundle(const std::string& precision) const {
    const std::string name =
        fmt::format("{}_{}_{}", GetParam().name, GetParam().optimizer, precision);
    auto bundle = CompileToBundle(name, DataFolder() + "/" + item()["model"].get<std::string>(),
                                  StrategyFor(item(), run(), precision));
    EXPECT_TRUE(bundle.ok()) << bundle.status().ToString();
    return bundle.ok() ? *bundle : std::string();
  }
};

double LossError(const std::vector<double>& losses, const json& expected, size_t count) {
  double error = losses.size() < count ? 1 : 0;
  for (size_t s = 0; s < count && s < losses.size(); ++s) {
    error = std::max(error, RelativeError(losses[s], expected["losses"][s].get<double>()));
  }
  return error;
}

// Of five losses, one per batch.
double MeanOf(const std::vector<double>& losses, size_t first) {
  double sum = 0;
  for (size_t s = first; s < first + 5; ++s) sum += losses.at(s);
  return sum / 5;
}

// Largest error over all tensors; `field` is "gradient" or "final".
double TensorError(const std::map<std::string, std::vector<double>>& actual, const json& expected,
                   const std::string& field, std::string* worst) {
  double error = 0;
  for (const auto& [name, entry] : expected["parameters"].items()) {
    const auto found = actual.find(name);
    if (found == actual.end()) {
      ADD_FAILURE() << name << " is missing";
      return 1;
    }
    const bool zero = field == "gradient" && entry["zero_gradient"].get<bool>();
    const double e = DigestError(DigestOf(found->second), DigestFromJson(entry[field]),
                                 zero ? expected["grad_norm"].get<double>() : 0);
    if (e > error) {
      error = e;
      *worst = name;
    }
  }
  return error;
}

// Largest normwise error of gradients against those of the fp64 mode, which match PyTorch's
// recorded digests: a digest alone shows a norm only up to the luck of its projections.
double NormwiseError(const std::map<std::string, std::vector<double>>& actual,
                     const std::map<std::string, std::vector<double>>& exact, const json& expected,
                     std::string* worst) {
  double error = 0;
  for (const auto& [name, entry] : expected["parameters"].items()) {
    if (!actual.count(name) || !exact.count(name)) {
      ADD_FAILURE() << name << " is missing";
      return 1;
    }
    const std::vector<double>& a = actual.at(name);
    const std::vector<double>& b = exact.at(name);
    if (a.size() != b.size()) {
      ADD_FAILURE() << name << " has " << a.size() << " elements, not " << b.size();
      return 1;
    }
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      difference += (a[i] - b[i]) * (a[i] - b[i]);
      norm += b[i] * b[i];
    }
    // A gradient that is zero in exact arithmetic is rounding noise of the whole.
    const double scale =
        entry["zero_gradient"].get<bool>() ? expected["grad_norm"].get<double>() : std::sqrt(norm);
    const double e = std::sqrt(difference) / scale;
    if (!(e <= error)) {
      error = e;
      *worst = name;
    }
  }
  return error;
}

TEST_P(Parity, DoubleMatchesOverTwentySteps) {
  const json wanted = expected();
  const std::string bundle = Bundle("fp64");
  ASSERT_FALSE(bundle.empty());
  const auto result = Train(bundle, {.steps = 20});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const double losses = LossError(result->losses, wanted, 20);
  EXPECT_LE(losses, 1e-8);
  std::string worst;
  const double parameters = TensorError(result->tensors, wanted, "final", &worst);
  EXPECT_LE(parameters, 1e-8) << worst;
  // Numbers of a job that learns nothing would prove little.
  const double fall = 1 - MeanOf(result->losses, 15) / MeanOf(result->losses, 0);
  EXPECT_GE(fall, 0.1);
  Figure("runs_fp64", 1);
  Measured("fp64_losses_20", losses);
  Measured("fp64_final_parameters", parameters);
  Measured("loss_left_after_20", 1 - fall);
  for (const auto& [name, entry] : wanted["running_statistics"].items()) {
    ASSERT_TRUE(result->tensors.count(name)) << name;
    EXPECT_LE(DigestError(DigestOf(result->tensors.at(name)), DigestFromJson(entry["final"])), 1e-8)
        << name;
  }
  // The twin: gradients 1 % too large must show.
  TrainOptions fault{.steps = 20};
  fault.fault.gradient_factor = 1.01;
  const auto broken = Train(bundle, fault);
  ASSERT_TRUE(broken.ok()) << broken.status().ToString();
  EXPECT_GT(TensorError(broken->tensors, wanted, "final", &worst), 1e-8);
  Figure("faults_gradient_fp64", 1);
}

TEST_P(Parity, SingleMatchesGradientsAndLosses) {
  const json wanted = expected();
  const std::string bundle = Bundle("fp32");
  ASSERT_FALSE(bundle.empty());
  const auto first = Train(bundle, {.steps = 1});
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const std::string exact_bundle = Bundle("fp64");
  ASSERT_FALSE(exact_bundle.empty());
  const auto exact = Train(exact_bundle, {.steps = 1});
  ASSERT_TRUE(exact.ok()) << exact.status().ToString();
  std::string worst;
  const double exact_gradients = TensorError(exact->gradients, wanted, "gradient", &worst);
  EXPECT_LE(exact_gradients, 1e-8) << worst;
  const double gradients = NormwiseError(first->gradients, exact->gradients, wanted, &worst);
  EXPECT_LE(gradients, 1e-5) << worst;
  const auto result = Train(bundle, {.steps = 20});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const double losses = LossError(result->losses, wanted, 3);
  EXPECT_LE(losses, 1e-5);
  Figure("runs_fp32", 1);
  Measured("fp64_gradients_step_1", exact_gradients);
  Measured("fp32_gradients_step_1", gradients);
  Measured("fp32_losses_3", losses);
  if (!item()["batch_norm"].get<bool>()) {
    const double all_losses = LossError(result->losses, wanted, 20);
    EXPECT_LE(all_losses, 1e-4);
    Measured("fp32_losses_20", all_losses);
  }
  TrainOptions fault{.steps = 1};
  fault.fault.gradient_factor = 1.01;
  const auto broken = Train(bundle, fault);
  ASSERT_TRUE(broken.ok()) << broken.status().ToString();
  EXPECT_GT(NormwiseError(broken->gradients, exact->gradients, wanted, &worst), 1e-5);
  Figure("faults_gradient_fp32", 1);
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name << " " << c.optimizer; }

INSTANTIATE_TEST_SUITE_P(Recorded, Parity, testing::ValuesIn(Cases()), [](const auto& info) {
  return info.param.name + "_" + info.param.optimizer;
});

}  // namespace
}  // namespace hyper::e2e
