// What the tests of public bug reports share: small graphs, their values and their gradients.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "test_models.h"

namespace hyper::onnx_frontend {

inline ir::HostTensor Floats(ir::Dims dims, std::vector<float> values) {
  return ir::HostTensor::FromVector(ir::DType::kF32, std::move(dims), values);
}

inline ir::HostTensor Int64s(ir::Dims dims, std::vector<int64_t> values) {
  return ir::HostTensor::FromVector(ir::DType::kI64, std::move(dims), values);
}

// The values of all outputs of a model in evaluation.
inline std::vector<ir::HostTensor> Outputs(const onnx::ModelProto& model,
                                           const std::map<std::string, ir::HostTensor>& inputs) {
  const auto loaded = MustLoad(model);
  if (loaded == nullptr) return {};
  return Evaluated(MustImport(*loaded, {}), "eval", inputs);
}

struct Differentiated {
  std::vector<float> loss;
  std::map<std::string, std::vector<float>> gradients;  // of every parameter that the loss reaches
  ImportedModel model;
  std::string diagnostics;
};

// Loss and gradients of the first loss of `options` (a scalar output) in @step.
inline Differentiated DifferentiateWith(const ImportOptions& options, const onnx::ModelProto& proto,
                                        const std::map<std::string, ir::HostTensor>& inputs) {
  Differentiated result;
  const auto loaded = MustLoad(proto);
  if (loaded == nullptr) return result;
  Diagnostics diagnostics;
  result.model = MustImport(*loaded, options, &diagnostics);
  if (result.model.forward.step_losses.empty()) return result;
  ir::Function step = *result.model.forward.module.Find("step");
  const ir::ValueId prediction = result.model.forward.step_losses[0].prediction;
  const ir::ValueId seed =
      step.AddArgument(step.type(prediction), ir::ArgumentKind::kScalar, "seed");
  std::vector<ir::ValueId> wanted;
  std::vector<std::string> names;
  std::vector<ir::HostTensor> arguments;
  for (const ir::Argument& a : step.arguments()) {
    if (a.kind == ir::ArgumentKind::kScalar) {
      arguments.push_back(ir::HostTensor::FromVector<float>(
          ir::DType::kF32, step.type(a.value).dims, std::vector<float>{1.0F}));
    } else if (a.kind == ir::ArgumentKind::kRng) {
      arguments.push_back(Int64s({3}, {1, 0, 0}));
    } else if (a.kind == ir::ArgumentKind::kInput) {
      arguments.push_back(inputs.count(a.name) > 0 ? inputs.at(a.name)
                                                   : ir::HostTensor::Zeros(step.type(a.value)));
    } else {
      arguments.push_back(result.model.forward.module.FindTensor(a.name)->initial);
      if (a.kind != ir::ArgumentKind::kParameter) continue;
      wanted.push_back(a.value);
      names.push_back(a.name);
    }
  }
  const auto gradients = ir::AppendGradients(step, {{prediction, seed}}, wanted, &diagnostics);
  EXPECT_TRUE(gradients.ok()) << diagnostics.Render();
  if (!gradients.ok()) return result;
  const size_t first = step.results().size();
  step.AddResult(prediction, "the.loss");
  std::vector<std::string> reached;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!(*gradients)[i].valid()) continue;
    step.AddResult((*gradients)[i], "gradient." + names[i]);
    reached.push_back(names[i]);
  }
  const auto values = ir::Evaluate(step, arguments);
  EXPECT_TRUE(values.ok()) << values.status().message();
  if (!values.ok()) return result;
  const auto vector = [&](size_t i) {
    const auto span = (*values)[i].as<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  result.loss = vector(first);
  for (size_t i = 0; i < reached.size(); ++i) {
    result.gradients[reached[i]] = vector(first + 1 + i);
  }
  result.diagnostics = diagnostics.Render();
  return result;
}

inline Differentiated Differentiate(const onnx::ModelProto& proto,
                                    const std::map<std::string, ir::HostTensor>& inputs,
                                    const std::string& loss = "loss") {
  return DifferentiateWith(TrainOn(loss), proto, inputs);
}

}  // namespace hyper::onnx_frontend
