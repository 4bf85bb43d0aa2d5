#include "tests/e2e/plan_jobs.h"

#include <fmt/format.h>

#include "tests/e2e/harness.h"

namespace hyper::e2e {
namespace {

std::string ConvNet(int batch) {
  return fmt::format(R"(version: 1
model: {{dims: {{batch: {}}}}}
train:
  loss: {{kind: cross_entropy, logits: logits, labels: labels}}
  optimizer: {{kind: adamw, lr: 1e-3}}
  micro_batches: 2
data:
  kind: synthetic
  inputs:
    image: {{field: normal}}
    labels: {{field: integers, low: 0, high: 10}}
run: {{steps: 3}}
)",
                     batch);
}

std::string ModelOf(const std::string& name) {
  return std::string(HYPER_SOURCE_DIR) + "/recipes/" + name + "/model.onnx";
}

std::string Gpt() {
  return R"(version: 1
model: {dims: {batch: 2}}
train:
  loss: {kind: cross_entropy, logits: logits, labels: labels}
  optimizer: {kind: adamw, lr: 1e-3}
  micro_batches: 2
  clip_norm: 1.0
data:
  kind: synthetic
  inputs:
    input_ids: {field: integers, low: 0, high: 256}
    labels: {field: integers, low: 0, high: 256}
run: {steps: 3}
)";
}

}  // namespace

std::vector<Job> Jobs() {
  return {{"plan_conv", ModelOf("fashion_mnist"), ConvNet(8)},
          {"plan_conv_odd", ModelOf("fashion_mnist"), ConvNet(3)},
          {"plan_gpt", ModelOf("bytes_gpt"), Gpt()}};
}

std::vector<Job> Recipes() {
  std::vector<Job> jobs;
  for (const std::string name : {"fashion_mnist", "bytes_gpt"}) {
    const std::string strategy = std::string(HYPER_SOURCE_DIR) + "/recipes/" + name + "/train.yaml";
    jobs.push_back({"plan_recipe_" + name, ModelOf(name), ReadFileOrDie(strategy)});
  }
  return jobs;
}

}  // namespace hyper::e2e
