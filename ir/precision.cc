// Changes the float type of a whole module: types, expressions, attributes, constants, initial
// values. Used by precision: fp64.
#include "ir/training.h"

namespace hyper::ir {
namespace {

Result<HostTensor> ConvertTensor(const HostTensor& tensor, DType from, DType to) {
  if (tensor.type().dtype != from || !tensor.defined()) return tensor;
  const int64_t count = tensor.type().elements();
  if (to == DType::kF64) {
    std::vector<double> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = tensor.ElementAsDouble(i);
    return HostTensor::FromVector(to, tensor.type().dims, values);
  }
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = static_cast<float>(tensor.ElementAsDouble(i));
  }
  return HostTensor::FromVector(to, tensor.type().dims, values);
}

Status ConvertNode(Node& node, DType from, DType to) {
  Attributes converted;
  for (const auto& [name, value] : node.attributes) {
    Attribute changed = value;
    if (auto* dtype = std::get_if<DType>(&changed)) {
      if (*dtype == from) *dtype = to;
    } else if (auto* expr = std::get_if<Expr>(&changed)) {
      *expr = ReplaceDType(*expr, from, to);
    } else if (auto* tensor = std::get_if<HostTensor>(&changed)) {
      HYPER_ASSIGN_OR_RETURN(*tensor, ConvertTensor(*tensor, from, to));
    }
    converted.Set(name, std::move(changed));
  }
  node.attributes = std::move(converted);
  return Status::Ok();
}

}  // namespace

Status ConvertPrecision(Module& module, DType from, DType to) {
  auto supported = [](DType t) { return t == DType::kF32 || t == DType::kF64; };
  if (!supported(from) || !supported(to)) {
    return Unimplemented("precision " + std::string(DTypeName(from)) + " to " +
                         std::string(DTypeName(to)) + ", expected f32 and f64");
  }
  for (Function& function : module.functions) {
    for (int32_t v = 0; v < function.value_count(); ++v) {
      TensorType& type = function.value(ValueId{v}).type;
      if (type.dtype == from) type.dtype = to;
    }
    for (NodeId id : function.order()) {
      HYPER_RETURN_IF_ERROR(ConvertNode(function.node(id), from, to));
    }
  }
  for (PersistentTensor& tensor : module.tensors) {
    if (tensor.type.dtype != from) continue;
    tensor.type.dtype = to;
    HYPER_ASSIGN_OR_RETURN(tensor.initial, ConvertTensor(tensor.initial, from, to));
  }
  return Status::Ok();
}

}  // namespace hyper::ir
