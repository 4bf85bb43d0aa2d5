#include "ir/op_def.h"

#include "base/strings.h"
#include "ir/node_check.h"

namespace hyper::ir {

void OpRegistry::Add(OpDef def) {
  HYPER_CHECK(Find(def.name) == nullptr, "op '" + std::string(def.name) + "' registered twice");
  owned_.push_back(std::make_unique<OpDef>(std::move(def)));
  order_.push_back(owned_.back().get());
}

const OpDef* OpRegistry::Find(std::string_view name) const {
  for (const OpDef* op : order_) {
    if (op->name == name) return op;
  }
  return nullptr;
}

const OpRegistry& CoreOps() {
  static const OpRegistry* registry = [] {
    auto* r = new OpRegistry();  // lives as long as the process: nodes point into it
    RegisterElementwiseOps(*r);
    RegisterDataMovementOps(*r);
    RegisterReductionOps(*r);
    RegisterContractionOps(*r);
    RegisterLinearAlgebraOps(*r);
    RegisterConvolutionOps(*r);
    RegisterPoolingOps(*r);
    RegisterNormalizationOps(*r);
    RegisterLossOps(*r);
    RegisterIndexingOps(*r);
    RegisterScatterOps(*r);
    RegisterRandomOps(*r);
    RegisterUpdateOps(*r);
    return r;
  }();
  return *registry;
}

const OpDef* CoreOp(std::string_view name) {
  const OpDef* op = CoreOps().Find(name);
  HYPER_CHECK(op != nullptr, "no core op '" + std::string(name) + "'");
  return op;
}

Status NormalizeAttributes(const OpDef& op, Attributes* attributes) {
  const std::string where = "op '" + std::string(op.name) + "': ";
  for (const AttributeDef& def : op.attributes) {
    const Attribute* a = attributes->Find(def.name);
    if (a == nullptr) {
      if (!def.default_value) {
        return InvalidArgument(where + "attribute '" + std::string(def.name) + "' (" +
                               std::string(AttributeKindName(def.kind)) + ") is missing");
      }
      attributes->Set(std::string(def.name), *def.default_value);
    } else if (KindOf(*a) != def.kind) {
      if (def.kind == AttributeKind::kFloat && KindOf(*a) == AttributeKind::kInt) {
        attributes->Set(std::string(def.name), static_cast<double>(std::get<int64_t>(*a)));
        continue;
      }
      return InvalidArgument(where + "attribute '" + std::string(def.name) + "' is a " +
                             std::string(AttributeKindName(KindOf(*a))) + ", expected a " +
                             std::string(AttributeKindName(def.kind)));
    }
  }
  for (const auto& [name, value] : *attributes) {
    bool known = false;
    std::vector<std::string> names;
    for (const AttributeDef& def : op.attributes) {
      known = known || def.name == name;
      names.emplace_back(def.name);
    }
    if (!known) {
      const std::string hint = DidYouMean(name, names);
      return InvalidArgument(where + "no attribute '" + name + "'" +
                             (hint.empty() ? "" : "; " + hint));
    }
  }
  return Status::Ok();
}

Status CheckType(const TensorType& type) {
  constexpr int64_t kMaxBytes = int64_t{1} << 56;
  constexpr size_t kMaxRank = 64;
  if (type.dims.size() > kMaxRank) {
    return InvalidArgument("rank " + std::to_string(type.dims.size()) + " is above 64");
  }
  int64_t bytes = DTypeBytes(type.dtype);
  for (int64_t d : type.dims) {
    if (d < 0) return InvalidArgument("negative extent in " + type.ToString());
    // Extents of 0 do not shrink the bound: strides are formed from the others.
    if (d > 0 && bytes > kMaxBytes / d) {
      return InvalidArgument("tensor " + type.ToString() + " is too large");
    }
    if (d > 0) bytes *= d;
  }
  return Status::Ok();
}

Result<std::vector<TensorType>> InferChecked(const OpDef& op, std::span<const TensorType> inputs,
                                             const Attributes& attributes) {
  const int count = static_cast<int>(inputs.size());
  const std::string where = "op '" + std::string(op.name) + "'";
  if (count < op.min_inputs || (op.max_inputs >= 0 && count > op.max_inputs)) {
    std::string expected = std::to_string(op.min_inputs);
    if (op.max_inputs < 0) {
      expected += " or more";
    } else if (op.max_inputs != op.min_inputs) {
      expected += " to " + std::to_string(op.max_inputs);
    }
    return InvalidArgument(where + " has " + std::to_string(count) + " inputs, expected " +
                           expected);
  }
  for (const TensorType& t : inputs) HYPER_RETURN_IF_ERROR(CheckType(t).WithContext(where));
  Result<std::vector<TensorType>> types = Guard([&] { return op.infer(inputs, attributes); });
  if (!types.ok()) return types.status().WithContext(where);
  for (const TensorType& t : *types) HYPER_RETURN_IF_ERROR(CheckType(t).WithContext(where));
  if (static_cast<int>(types->size()) != op.outputs) {
    return Internal(where + ": inference gave " + std::to_string(types->size()) + " types for " +
                    std::to_string(op.outputs) + " outputs");
  }
  return types;
}

}  // namespace hyper::ir
