#include "frontend/onnx/bound_inputs.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/strings.h"

namespace hyper::onnx_frontend {
namespace {

std::string DeclaredText(const onnx::ValueInfoProto& input, ir::DType dtype) {
  const auto& shape = input.type().tensor_type().shape();
  std::vector<std::string> extents;
  for (int i = 0; i < shape.dim_size(); ++i) {
    extents.push_back(shape.dim(i).has_dim_value() ? std::to_string(shape.dim(i).dim_value())
                                                   : DimName(input, i));
  }
  return fmt::format("{}[{}]", ir::DTypeName(dtype), Join(extents, ","));
}

bool FitsShape(const onnx::TypeProto::Tensor& declared, const ir::TensorType& type) {
  if (!declared.has_shape()) return true;
  if (declared.shape().dim_size() != type.rank()) return false;
  for (int i = 0; i < type.rank(); ++i) {
    const auto& dim = declared.shape().dim(i);
    if (dim.has_dim_value() && dim.dim_value() != type.dims[static_cast<size_t>(i)]) return false;
  }
  return true;
}

// `value` in the type that the input has in the program.
Result<ir::HostTensor> ValueFor(const onnx::ValueInfoProto& input, ir::DType declared,
                                bool double_precision, const ir::HostTensor& value) {
  const auto wrong = [&](const std::string& why) {
    return InvalidArgument(fmt::format("'{}' is bound to {}{}; the input is {}", input.name(),
                                       value.type().ToString(), why,
                                       DeclaredText(input, declared)));
  };
  const ir::DType given = value.type().dtype;
  const bool fits = given == declared || (ir::IsFloat(declared) && given != ir::DType::kBool) ||
                    (ir::IsInteger(declared) && ir::IsInteger(given));
  if (!fits || !FitsShape(input.type().tensor_type(), value.type())) return wrong("");
  const ir::DType dtype =
      double_precision && declared == ir::DType::kF32 ? ir::DType::kF64 : declared;
  if (given == dtype) return value;
  ir::HostTensor converted = ConvertTensor(value, dtype);
  if (!ir::IsInteger(dtype)) return converted;
  for (int64_t i = 0; i < value.type().elements(); ++i) {
    const int64_t element = value.ElementAsInt(i);
    const bool sign_lost = element < 0 && (dtype == ir::DType::kU64 || given == ir::DType::kU64);
    if (converted.ElementAsInt(i) != element || sign_lost) {
      return wrong(fmt::format(" with the element {}", element));
    }
  }
  return converted;
}

}  // namespace

std::string DimName(const onnx::ValueInfoProto& input, int axis) {
  const std::string& name = input.type().tensor_type().shape().dim(axis).dim_param();
  return name.empty() ? fmt::format("{}.{}", input.name(), axis) : name;
}

BoundValues BindValues(const LoadedModel& model, const ImportOptions& options,
                       Diagnostics* diagnostics) {
  BoundValues bound;
  bound.dims = options.dims;
  std::vector<std::string> inputs;
  for (const onnx::ValueInfoProto* input : model.inputs) inputs.push_back(input->name());
  const std::string all = inputs.empty() ? "none" : Join(inputs, ", ");
  std::map<std::string, std::string> giver;  // dim -> the bound input that gave its extent
  for (const auto& [name, given] : options.bind) {
    const auto error = [&, &location = given.location](std::string message, std::string help) {
      diagnostics->Error(location.file.empty() ? SourceLocation{model.path} : location,
                         std::move(message), std::move(help));
    };
    const auto it = std::find(inputs.begin(), inputs.end(), name);
    if (it == inputs.end()) {
      error(model.FindTensor(name) != nullptr
                ? fmt::format("'{}' has a value in the model; what can be bound are inputs "
                              "without one: {}",
                              name, all)
                : fmt::format("the model has no input '{}' to bind; there are {}", name, all),
            DidYouMean(name, inputs));
      continue;
    }
    const onnx::ValueInfoProto& input = *model.inputs[static_cast<size_t>(it - inputs.begin())];
    const auto dtype = DTypeFromOnnx(input.type().tensor_type().elem_type());
    if (!input.type().has_tensor_type() || !dtype.has_value()) continue;  // refused as an input
    Result<ir::HostTensor> value = ValueFor(input, *dtype, options.double_precision, given.value);
    if (!value.ok()) {
      error(value.status().message(), {});
      continue;
    }
    const auto& shape = input.type().tensor_type().shape();
    for (int i = 0; i < shape.dim_size(); ++i) {
      if (shape.dim(i).has_dim_value()) continue;
      const std::string dim = DimName(input, i);
      const int64_t extent = value->type().dims[static_cast<size_t>(i)];
      const auto [place, fresh] = bound.dims.emplace(dim, extent);
      if (fresh) {
        giver[dim] = name;
      } else if (place->second != extent) {
        error(fmt::format("'{}' is bound to a value of shape {}, but its dim '{}' is {} by {}",
                          name, FormatDims(value->type().dims), dim, place->second,
                          giver.count(dim) > 0 ? fmt::format("the value of '{}'", giver[dim])
                                               : "model.dims"),
              {});
      }
    }
    bound.values[name] = *std::move(value);
  }
  return bound;
}

}  // namespace hyper::onnx_frontend
