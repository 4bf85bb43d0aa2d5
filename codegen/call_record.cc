#include "codegen/call_record.h"

#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ir/expr.h"
#include "ir/node_check.h"
#include "ir/op_def.h"

namespace hyper::codegen {
namespace {

using google::protobuf::RepeatedPtrField;

ir::TensorType TypeOf(const program::Operand& operand) {
  return {static_cast<ir::DType>(operand.dtype()),
          ir::Dims(operand.dims().begin(), operand.dims().end())};
}

Result<ir::Attribute> Decode(const program::Attribute& a, const std::vector<ir::DType>& dtypes) {
  switch (a.value_case()) {
    case program::Attribute::kIntValue: return ir::Attribute(int64_t{a.int_value()});
    case program::Attribute::kFloatValue: return ir::Attribute(a.float_value());
    case program::Attribute::kBoolValue: return ir::Attribute(a.bool_value());
    case program::Attribute::kStringValue: return ir::Attribute(a.string_value());
    case program::Attribute::kDimsValue:
      return ir::Attribute(
          ir::Dims(a.dims_value().values().begin(), a.dims_value().values().end()));
    case program::Attribute::kDtypeValue:
      return ir::Attribute(static_cast<ir::DType>(a.dtype_value()));
    case program::Attribute::kExprValue: {
      Result<ir::Expr> expr = ir::Expr::Parse(a.expr_value(), dtypes);
      if (!expr.ok()) return DataLoss("an expression: " + expr.status().message());
      return ir::Attribute(std::move(expr).value());
    }
    case program::Attribute::kTensorValue: {
      const ir::TensorType type{static_cast<ir::DType>(a.tensor_dtype()),
                                ir::Dims(a.tensor_dims().begin(), a.tensor_dims().end())};
      if (type.bytes() != static_cast<int64_t>(a.tensor_value().size())) {
        return DataLoss("its data has another size than its type");
      }
      return ir::Attribute(ir::HostTensor(
          type, std::as_bytes(std::span(a.tensor_value().data(), a.tensor_value().size()))));
    }
    case program::Attribute::VALUE_NOT_SET: break;
  }
  return DataLoss("no value");
}

}  // namespace

Result<ir::Attributes> DecodeAttributes(const RepeatedPtrField<program::Attribute>& encoded,
                                        const RepeatedPtrField<program::Operand>& operands) {
  std::vector<ir::DType> dtypes;
  for (const program::Operand& operand : operands) {
    dtypes.push_back(static_cast<ir::DType>(operand.dtype()));
  }
  ir::Attributes out;
  for (const program::Attribute& a : encoded) {
    Result<ir::Attribute> value = Guard([&] { return Decode(a, dtypes); });
    if (!value.ok()) {
      return DataLoss(
          fmt::format("attribute '{}': {}", a.name().substr(0, 80), value.status().message()));
    }
    out.Set(a.name(), std::move(value).value());
  }
  return out;
}

Status CheckCall(const std::string& op, const RepeatedPtrField<program::Attribute>& attributes,
                 const RepeatedPtrField<program::Operand>& operands) {
  const ir::OpDef* def = ir::CoreOps().Find(op);
  if (def == nullptr) return DataLoss(fmt::format("unknown core op '{}'", op.substr(0, 80)));
  HYPER_ASSIGN_OR_RETURN(ir::Attributes decoded, DecodeAttributes(attributes, operands));
  if (const Status status = ir::NormalizeAttributes(*def, &decoded); !status.ok()) {
    return DataLoss(status.message());
  }
  std::vector<ir::TensorType> types;
  for (const program::Operand& operand : operands) {
    if (operand.access() != program::WORKSPACE) types.push_back(TypeOf(operand));
  }
  const auto outputs = static_cast<size_t>(def->outputs);
  if (types.size() < outputs) {
    return DataLoss(
        fmt::format("op '{}' has {} operands and {} outputs", op, types.size(), outputs));
  }
  const std::span<const ir::TensorType> all(types);
  const std::span<const ir::TensorType> written = all.last(outputs);
  const Result<std::vector<ir::TensorType>> inferred =
      ir::InferChecked(*def, all.first(types.size() - outputs), decoded);
  if (!inferred.ok()) return DataLoss(inferred.status().message());
  if (!def->accumulates) {
    for (const program::Operand& operand : operands) {
      if (operand.access() == program::ACCUMULATE) {
        return DataLoss(fmt::format("op '{}' cannot add to its output", op));
      }
    }
  }
  for (size_t i = 0; i < outputs; ++i) {
    if (written[i] == (*inferred)[i]) continue;
    return DataLoss(fmt::format("output {} of op '{}' is {}, its inputs make it {}", i, op,
                                written[i].ToString(), (*inferred)[i].ToString()));
  }
  return Status::Ok();
}

}  // namespace hyper::codegen
