#include "tests/onnx_backend/random_outputs.h"

#include <cmath>

#include <fmt/format.h>

namespace hyper::onnx_backend {
namespace {

// Operand `i` of the only node, or the value given when it is left out.
double ScalarOperand(const NodeCase& node_case, int i, double fallback) {
  const onnx::NodeProto& node = node_case.model.graph().node(0);
  if (i >= node.input_size() || node.input(i).empty()) return fallback;
  const auto input = node_case.inputs.find(node.input(i));
  if (input == node_case.inputs.end()) return fallback;
  const auto value = TensorOf(input->second);
  if (!value.ok()) return fallback;
  return value->type().dtype == ir::DType::kBool ? static_cast<double>(value->ElementAsInt(0))
                                                 : value->ElementAsDouble(0);
}

// Of `n` draws with probability `p`: within five standard deviations.
bool IsLikely(int64_t count, int64_t n, double p) {
  const double mean = static_cast<double>(n) * p;
  return std::abs(static_cast<double>(count) - mean) <=
         5 * std::sqrt(static_cast<double>(n) * p * (1 - p)) + 1e-9;
}

std::string DropoutDifference(const NodeCase& node_case, const std::vector<ir::HostTensor>& got) {
  const auto x = TensorOf(node_case.inputs.at(node_case.model.graph().node(0).input(0)));
  const double ratio = ScalarOperand(node_case, 1, 0.5);
  int64_t dropped = 0;
  const int64_t n = got[0].type().elements();
  for (int64_t i = 0; i < n; ++i) {
    const double y = got[0].ElementAsDouble(i);
    const double kept = x->ElementAsDouble(i) / (1 - ratio);
    const bool zero = got.size() > 1 ? got[1].ElementAsInt(i) == 0 : y == 0;
    dropped += zero ? 1 : 0;
    const double expected = zero ? 0 : kept;
    if (std::abs(y - expected) > 1e-6 * std::abs(kept)) {
      return fmt::format("element {} is {}, expected {}", i, y, expected);
    }
  }
  if (!IsLikely(dropped, n, ratio)) {
    return fmt::format("{} of {} elements are dropped at a ratio of {}", dropped, n, ratio);
  }
  return {};
}

std::string BernoulliDifference(const NodeCase& node_case, const ir::HostTensor& got) {
  const auto p = TensorOf(node_case.inputs.begin()->second);
  int64_t ones = 0;
  double mean = 0;
  double variance = 0;
  for (int64_t i = 0; i < got.type().elements(); ++i) {
    const double y = ir::IsFloat(got.type().dtype) ? got.ElementAsDouble(i)
                                                   : static_cast<double>(got.ElementAsInt(i));
    if (y != 0 && y != 1) return fmt::format("element {} is {}, expected 0 or 1", i, y);
    ones += y == 1 ? 1 : 0;
    mean += p->ElementAsDouble(i);
    variance += p->ElementAsDouble(i) * (1 - p->ElementAsDouble(i));
  }
  if (std::abs(static_cast<double>(ones) - mean) > 5 * std::sqrt(variance) + 1e-9) {
    return fmt::format("{} ones, expected about {}", ones, mean);
  }
  return {};
}

}  // namespace

bool HasRandomOutputs(const NodeCase& node_case) {
  if (node_case.op == "Bernoulli") return true;
  return node_case.op == "Dropout" && ScalarOperand(node_case, 2, 0) != 0 &&
         ScalarOperand(node_case, 1, 0.5) != 0;
}

std::string RandomDifference(const NodeCase& node_case, const std::vector<ir::HostTensor>& got,
                             const std::vector<ir::HostTensor>& want) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].type() == want[i].type()) continue;
    return fmt::format("output {} is {}, expected {}", i, got[i].type().ToString(),
                       want[i].type().ToString());
  }
  return node_case.op == "Dropout" ? DropoutDifference(node_case, got)
                                   : BernoulliDifference(node_case, got[0]);
}

}  // namespace hyper::onnx_backend
