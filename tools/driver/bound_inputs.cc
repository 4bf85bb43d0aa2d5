#include "tools/driver/bound_inputs.h"

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/data/tensor_file.h"

namespace hyper::tools {
namespace {

ir::HostTensor TensorOf(const strategy::BoundValue& bound) {
  if (!bound.numbers.empty()) {
    return ir::HostTensor::FromVector(ir::DType::kF64, bound.dims, bound.numbers);
  }
  if (!bound.truth_values) {
    return ir::HostTensor::FromVector(ir::DType::kI64, bound.dims, bound.integers);
  }
  const std::vector<uint8_t> truths(bound.integers.begin(), bound.integers.end());
  return ir::HostTensor::FromVector(ir::DType::kBool, bound.dims, truths);
}

}  // namespace

std::map<std::string, onnx_frontend::BoundInput> BoundInputsOf(const strategy::Strategy& strategy,
                                                               Diagnostics* diagnostics) {
  std::map<std::string, onnx_frontend::BoundInput> inputs;
  for (const auto& [name, bound] : strategy.model.bind) {
    const SourceLocation location = strategy.LocationOf("model.bind." + name);
    if (bound.file.empty()) {
      inputs[name] = {TensorOf(bound), location};
      continue;
    }
    // An absolute path stays what it is.
    const std::filesystem::path folder = std::filesystem::path(strategy.file).parent_path();
    Result<ir::HostTensor> value = runtime::ReadNpyTensor(folder / bound.file);
    if (value.ok()) {
      inputs[name] = {*std::move(value), location};
    } else {
      diagnostics->Error(location,
                         fmt::format("model.bind.{}: {}", name, value.status().message()));
    }
  }
  return inputs;
}

}  // namespace hyper::tools
