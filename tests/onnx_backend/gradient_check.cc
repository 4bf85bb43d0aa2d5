#include "tests/onnx_backend/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <set>

#include <fmt/format.h>

#include "frontend/onnx/load.h"
#include "ir/builder.h"
#include "ir/reference/reference.h"
#include "ir/text.h"
#include "ir/training.h"
#include "onnx/defs/schema.h"
#include "tests/onnx_backend/binding.h"

namespace hyper::onnx_backend {
namespace {

using ir::DType;
using ir::HostTensor;
using ir::ValueId;

constexpr double kTolerance = 1e-6;
constexpr int kDirections = 3;
constexpr int kElements = 6;  // of each operand, one at a time

// Without a mark in ONNX's schemas although a derivative exists: operands to differentiate in.
const std::map<std::string, std::set<int>> kUnmarked = {
    {"Attention", {0, 1, 2, 4, 5}},
    {"DFT", {0}},
    {"DeformConv", {0, 1, 2, 3, 4}},
    {"DequantizeLinear", {1}},
    {"FlexAttention", {0, 1, 2}},
    {"If", {}},
    {"LayerNormalization", {0, 1, 2}},
    {"Loop", {}},
    {"RMSNormalization", {0, 1}},
    {"ReverseSequence", {0}},
    {"RoiAlign", {0}},
    {"RotaryEmbedding", {0, 1, 2}},
    {"STFT", {0, 2}},
    {"Scan", {}},
    {"Scatter", {0, 2}},
    {"Upsample", {0}},
};

// Ops whose outputs ONNX marks as not differentiable although they are linear in an operand.
const std::set<std::string> kLinear = {"STFT"};

using Formal = onnx::OpSchema::FormalParameter;

// Marks of operand or output `i` over all versions of the op; a variadic one repeats.
bool Marked(const std::string& domain, const std::string& op, bool input, int i) {
  const auto unmarked = kUnmarked.find(op);
  if (unmarked != kUnmarked.end() && input) {
    return unmarked->second.empty() || unmarked->second.count(i) > 0;
  }
  if (!input && kLinear.contains(op)) return true;
  bool known = false;
  for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
    if (schema.Name() != op || schema.domain() != domain) continue;
    const std::vector<Formal>& formals = input ? schema.inputs() : schema.outputs();
    if (formals.empty()) continue;
    const bool variadic = formals.back().GetOption() == onnx::OpSchema::Variadic;
    if (i >= static_cast<int>(formals.size()) && !variadic) continue;
    const Formal& formal = formals[std::min(static_cast<size_t>(i), formals.size() - 1)];
    const auto category = formal.GetDifferentiationCategory();
    if (category == onnx::OpSchema::Differentiable) return true;
    known = known || category == onnx::OpSchema::NonDifferentiable;
  }
  return !input && !known;
}

// Inputs of the model that the node reads where it can be differentiated; all of them for nodes
// with bodies, whose captured values count too.
std::set<std::string> WantedInputs(const NodeCase& node_case) {
  std::set<std::string> wanted;
  const auto unmarked = kUnmarked.find(node_case.op);
  if (unmarked != kUnmarked.end() && unmarked->second.empty()) {
    for (const auto& [name, value] : node_case.inputs) wanted.insert(name);
    return wanted;
  }
  for (int i = 0; i < node_case.node.input_size(); ++i) {
    if (Marked(node_case.domain, node_case.op, true, i)) wanted.insert(node_case.node.input(i));
  }
  return wanted;
}

bool WantedOutput(const NodeCase& node_case, const std::string& name) {
  for (int i = 0; i < node_case.node.output_size(); ++i) {
    if (node_case.node.output(i) == name) {
      return Marked(node_case.domain, node_case.op, false, i);
    }
  }
  return true;
}

HostTensor Widened(const HostTensor& value) {
  if (value.type().dtype != DType::kF32) return value;
  std::vector<double> values;
  for (const float element : value.as<float>()) values.push_back(element);
  return HostTensor::FromVector(DType::kF64, value.type().dims, values);
}

// The loss and its gradients as one function.
struct Check {
  ir::Function function{"check"};
  std::vector<HostTensor> arguments;
  std::vector<size_t> wanted;  // arguments
  std::vector<bool> present;   // whether a wanted one has a gradient
};

using Random = std::mt19937_64;
double Unit(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

std::vector<double> Draw(size_t n, Random& random) {
  std::vector<double> values(n);
  for (double& v : values) v = 2 * Unit(random) - 1;
  return values;
}

// Away from kinks at zero, at integers and halves, and from ties: every element gets an offset of
// its own between 1 and 3 percent of `scale`. What is not finite proves nothing and becomes so.
HostTensor Moved(const HostTensor& value, double scale, Random& random) {
  std::vector<double> values(value.as<double>().begin(), value.as<double>().end());
  for (double& v : values) {
    if (!std::isfinite(v)) v = 0.3;
    v += scale * (0.01 + 0.02 * Unit(random));
  }
  return HostTensor::FromVector(DType::kF64, value.type().dims, values);
}

// Appends cotangents, the loss and the gradients to the imported forward function.
Result<std::optional<Check>> Build(const NodeCase& node_case, ir::Module& module, Random& random,
                                   Diagnostics* diagnostics) {
  Check check;
  check.function = *module.Find("eval");
  ir::Function& f = check.function;
  const std::set<std::string> names = WantedInputs(node_case);
  std::vector<ValueId> wanted;
  for (const ir::Argument& a : f.arguments()) {
    const ir::TensorType& type = f.type(a.value);
    if (a.kind == ir::ArgumentKind::kInput) {
      HYPER_ASSIGN_OR_RETURN(const HostTensor value, TensorOf(node_case.inputs.at(a.name)));
      check.arguments.push_back(Widened(value));
      if (names.count(a.name) > 0 && type.dtype == DType::kF64 && type.elements() > 0) {
        check.wanted.push_back(check.arguments.size() - 1);
        wanted.push_back(a.value);
      }
    } else if (a.kind == ir::ArgumentKind::kRng) {
      check.arguments.push_back(HostTensor::FromVector<int64_t>(DType::kI64, {3}, {1, 0, 0}));
    } else {
      check.arguments.push_back(module.FindTensor(a.name)->initial);
    }
  }
  ir::Builder b(&f);
  ValueId loss;
  for (const ir::FunctionResult& result : f.results()) {
    const ir::TensorType type = f.type(result.value);
    if (type.dtype != DType::kF64 || type.elements() == 0 ||
        !WantedOutput(node_case, result.name)) {
      continue;
    }
    check.arguments.push_back(HostTensor::FromVector(
        DType::kF64, type.dims, Draw(static_cast<size_t>(type.elements()), random)));
    const ValueId cotangent =
        f.AddArgument(type, ir::ArgumentKind::kInput, "cotangent of " + result.name);
    ir::Dims axes;
    for (int64_t d = 0; d < type.rank(); ++d) axes.push_back(d);
    // Masked scores are minus infinity whatever the operands are.
    const ValueId finite = b.Select(b.Unary(ir::ScalarOp::kIsInf, result.value),
                                    b.Splat(DType::kF64, type.dims, 0), result.value);
    const ValueId term = b.Reduce("sum", b.Binary(ir::ScalarOp::kMul, finite, cotangent), axes);
    loss = loss.valid() ? b.Binary(ir::ScalarOp::kAdd, loss, term) : term;
  }
  if (wanted.empty() || !loss.valid()) return std::optional<Check>();
  const ValueId seed = f.AddArgument({DType::kF64, {}}, ir::ArgumentKind::kScalar, "seed");
  check.arguments.push_back(HostTensor::FromVector<double>(DType::kF64, {}, {1.0}));
  HYPER_ASSIGN_OR_RETURN(const std::vector<ValueId> gradients,
                         ir::AppendGradients(f, {{loss, seed}}, wanted, diagnostics));
  f.ClearResults();
  f.AddResult(loss, "loss");
  for (size_t i = 0; i < gradients.size(); ++i) {
    check.present.push_back(gradients[i].valid());
    if (gradients[i].valid()) f.AddResult(gradients[i], fmt::format("gradient{}", i));
  }
  HYPER_RETURN_IF_ERROR(ir::Verify(f));
  return std::optional<Check>(std::move(check));
}

// A direction: what is added to each wanted argument.
using Direction = std::vector<std::vector<double>>;

class Quotients {
 public:
  explicit Quotients(const Check& check) : check_(check), loss_(check.function) {
    const ir::FunctionResult loss = loss_.results().front();
    loss_.ClearResults();
    loss_.AddResult(loss.value, loss.name);
    // The loss alone, since it is evaluated often.
    std::vector<bool> dead(static_cast<size_t>(loss_.node_count()), true);
    for (std::vector<ValueId> open = {loss.value}; !open.empty();) {
      const ir::NodeId producer = loss_.value(open.back()).producer;
      open.pop_back();
      if (!producer.valid() || !dead[static_cast<size_t>(producer.index)]) continue;
      dead[static_cast<size_t>(producer.index)] = false;
      const std::vector<ValueId>& inputs = loss_.node(producer).inputs;
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
    loss_.RemoveNodes(dead);
  }

  Result<double> Along(const Direction& direction, double step) const {
    double ends[2];
    for (const int side : {0, 1}) {
      std::vector<HostTensor> arguments = check_.arguments;
      for (size_t w = 0; w < check_.wanted.size(); ++w) {
        HostTensor& x = arguments[check_.wanted[w]];
        std::vector<double> values(x.as<double>().begin(), x.as<double>().end());
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] += (side == 0 ? -step : step) * direction[w][i];
        }
        x = HostTensor::FromVector(DType::kF64, x.type().dims, values);
      }
      HYPER_ASSIGN_OR_RETURN(const std::vector<HostTensor> results, ir::Evaluate(loss_, arguments));
      ends[side] = results[0].ElementAsDouble(0);
    }
    return (ends[1] - ends[0]) / (2 * step);
  }

 private:
  const Check& check_;
  ir::Function loss_;
};

std::vector<Direction> Directions(const Check& check, Random& random) {
  std::vector<Direction> directions;
  const auto zero = [&] {
    Direction direction;
    for (const size_t w : check.wanted) {
      direction.emplace_back(static_cast<size_t>(check.arguments[w].type().elements()), 0.0);
    }
    return direction;
  };
  for (int k = 0; k < kDirections; ++k) {
    directions.push_back(zero());
    for (std::vector<double>& part : directions.back()) part = Draw(part.size(), random);
  }
  for (size_t w = 0; w < check.wanted.size(); ++w) {
    const auto n = static_cast<size_t>(check.arguments[check.wanted[w]].type().elements());
    for (size_t k = 0; k < std::min<size_t>(kElements, n); ++k) {
      directions.push_back(zero());
      directions.back()[w][n <= kElements ? k : random() % n] = 1;
    }
  }
  return directions;
}

enum class Fit { kFits, kDiffers, kRough };

// kRough: the loss is not smooth or not finite around these arguments, which proves nothing.
Result<Fit> Compare(const Check& check, double step, double fault, Random& random,
                    std::string* worst) {
  HYPER_ASSIGN_OR_RETURN(const std::vector<HostTensor> results,
                         ir::Evaluate(check.function, check.arguments));
  if (!std::isfinite(results[0].ElementAsDouble(0))) return Fit::kRough;
  const Quotients quotients(check);
  for (const Direction& direction : Directions(check, random)) {
    double computed = 0;
    double scale = std::max(1.0, 1e-3 * std::abs(results[0].ElementAsDouble(0)));
    size_t next = 1;
    for (size_t w = 0; w < check.wanted.size(); ++w) {
      if (!check.present[w]) continue;
      const std::span<const double> gradient = results[next++].as<double>();
      for (size_t i = 0; i < gradient.size(); ++i) {
        computed += fault * gradient[i] * direction[w][i];
        scale = std::max(scale, std::abs(gradient[i] * direction[w][i]));
      }
    }
    HYPER_ASSIGN_OR_RETURN(const double wide, quotients.Along(direction, 2 * step));
    HYPER_ASSIGN_OR_RETURN(const double narrow, quotients.Along(direction, step));
    scale = std::max(scale, std::abs(narrow));
    if (!(std::abs(wide - narrow) <= kTolerance * scale)) return Fit::kRough;
    if (std::abs(computed - narrow) <= kTolerance * scale) continue;
    *worst = fmt::format("along a direction the gradient gives {}, differences give {}", computed,
                         narrow);
    return Fit::kDiffers;
  }
  return Fit::kFits;
}

GradientResult Failed(std::string text) { return {GradientResult::kFailed, std::move(text)}; }

GradientResult CheckImported(const NodeCase& node_case, ir::Module& module, double fault) {
  // Offsets for kinks and ties: small and negative ones where the op's domain ends nearby, small
  // steps where many elements are near each other.
  const std::vector<std::pair<double, double>> attempts = {
      {1.0, 1e-5}, {-1.0, 1e-5}, {0.1, 1e-5}, {-0.1, 1e-5}, {0.01, 1e-5}, {1.0, 1e-6}, {1.0, 1e-7}};
  for (const auto& [scale, step] : attempts) {
    Random random(std::hash<std::string>{}(node_case.name));
    Diagnostics diagnostics;
    auto check = Build(node_case, module, random, &diagnostics);
    if (!check.ok()) {
      return {GradientResult::kNoGradient, FirstError(diagnostics, check.status())};
    }
    if (!check->has_value()) return {GradientResult::kNoFloats, ""};
    for (const size_t w : (*check)->wanted) {
      (*check)->arguments[w] = Moved((*check)->arguments[w], scale, random);
    }
    std::string worst;
    const auto fit = Compare(**check, step, fault, random, &worst);
    if (!fit.ok()) return Failed(fit.status().message());
    if (*fit == Fit::kFits) return {GradientResult::kChecked, ""};
    if (*fit == Fit::kDiffers) return Failed(worst);
  }
  return Failed("the loss is smooth around none of the points tried");
}

}  // namespace

bool IsDifferentiable(const std::string& domain, const std::string& op) {
  if (kUnmarked.count(op) > 0) return true;
  for (int i = 0; i < 8; ++i) {
    if (Marked(domain, op, true, i)) return true;
  }
  return false;
}

GradientResult CheckGradient(const NodeCase& node_case, double fault) {
  Diagnostics loading;
  const auto model =
      onnx_frontend::LoadModelProto(node_case.model, node_case.name, node_case.folder, &loading);
  if (!model.ok()) return {GradientResult::kNotImported, FirstError(loading, model.status())};
  std::set<std::string> bound;
  std::string message;
  auto imported = ImportBinding(
      node_case, **model,
      [&](const std::set<std::string>& names) -> Result<onnx_frontend::ImportOptions> {
        onnx_frontend::ImportOptions options;
        options.literal_modes = true;
        options.double_precision = true;
        for (const std::string& name : names) {
          HYPER_ASSIGN_OR_RETURN(options.bind[name].value, TensorOf(node_case.inputs.at(name)));
        }
        return options;
      },
      &bound, &message);
  if (!imported.ok()) return {GradientResult::kNotImported, message};
  GradientResult result;
  const Status status = Guard([&] {
    result = CheckImported(node_case, imported->forward.module, fault);
    return Status::Ok();
  });
  return status.ok() ? result : Failed(status.message());
}

}  // namespace hyper::onnx_backend
