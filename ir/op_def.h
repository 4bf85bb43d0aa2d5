// One record per core op: everything the compiler knows about it stands here and nowhere else.
// tests/ir/registry_test walks the registry for blanks; docs/ops.md is written from it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "ir/attribute.h"
#include "ir/graph.h"
#include "ir/types.h"

namespace hyper::ir {

class Builder;

struct AttributeDef {
  std::string_view name;
  AttributeKind kind;
  std::string_view doc;
  std::optional<Attribute> default_value;  // nullopt: required
};

// Types of the outputs from the types of the inputs; the message names the offending dim.
using InferFunction = std::function<Result<std::vector<TensorType>>(
    std::span<const TensorType> inputs, const Attributes& attributes)>;

// Adds backward nodes through `builder`. output_grads[i] is invalid where no gradient arrives; at
// least one is valid. wanted[i] tells which input gradients are asked for. Sets input_grads[i] for
// wanted inputs (an invalid id means zero).
struct GradientContext {
  Builder& builder;
  const Node& node;  // a copy: adding nodes does not move it
  std::span<const ValueId> output_grads;
  const std::vector<bool>& wanted;
  std::vector<ValueId>& input_grads;
};
using GradientFunction = std::function<Status(const GradientContext&)>;
struct ZeroGradient {
  std::string_view reason;
};  // derivative is zero almost everywhere
struct NotDifferentiable {
  std::string_view reason;
};  // asking for it is an error
using GradientRule =
    std::variant<std::monostate, GradientFunction, ZeroGradient, NotDifferentiable>;

// Sharding as factors: one letter string per operand and result, in dim order. A factor may be a
// pass-through (in inputs and results), a reduction (inputs only) or must-replicate.
struct ShardingFactors {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::string reduced;     // letters summed (or max'ed, ... see reduction) when split
  std::string replicated;  // letters that may not be split
  std::string reduction = "sum";
};
using ShardingFunction = std::function<ShardingFactors(
    std::span<const TensorType> inputs, std::span<const TensorType> outputs, const Attributes&)>;
struct NotShardable {
  std::string_view reason;
};
using ShardingRule = std::variant<std::monostate, ShardingFunction, NotShardable>;

// Attributes of the op on the slices of one rank, from those on the whole tensors: extents in them
// are those of the slices.
using LocalizeFunction =
    std::function<Attributes(const Attributes&, std::span<const TensorType> local_in,
                             std::span<const TensorType> local_out)>;

struct OpCost {
  double flops = 0;
  double bytes = 0;  // operands read + results written once
};
using CostFunction = std::function<OpCost(std::span<const TensorType> inputs,
                                          std::span<const TensorType> outputs, const Attributes&)>;

// Which operands backward reads again: drives recompute, offload and liveness reports.
struct SavedForBackward {
  std::vector<int> inputs;
  std::vector<int> outputs;
};

// output may take over the storage of input when that input dies here.
struct InPlaceRule {
  int output = 0;
  int input = 0;
};

struct OpDef {
  std::string_view name;
  std::string_view family;   // "elementwise", "reduction", "contraction", ...
  std::string_view summary;  // one sentence with the formula
  int min_inputs = 0;
  int max_inputs = 0;  // -1: any number
  int outputs = 1;
  std::vector<AttributeDef> attributes;
  InferFunction infer;
  GradientRule gradient;
  ShardingRule sharding;
  LocalizeFunction localize;  // empty: the attributes hold no extents
  CostFunction cost;
  std::optional<SavedForBackward> saved;
  std::optional<std::vector<InPlaceRule>> in_place;
  bool accumulates = false;       // a kernel can add to its output instead of overwriting it
  bool has_side_effects = false;  // never removed, never merged, never repeated (updates)
  // What lowering chooses from for the target, by preference: library kernels where they take the
  // operands, "generated" = by the kernel emitter, "reference" last (only where it is asked for).
  std::vector<std::string_view> cpu_kernels;
};

class OpRegistry {
 public:
  void Add(OpDef def);  // duplicate names are our bug
  const OpDef* Find(std::string_view name) const;
  // In order of registration.
  std::span<const OpDef* const> ops() const { return order_; }

 private:
  std::vector<std::unique_ptr<OpDef>> owned_;
  std::vector<const OpDef*> order_;
};

// All core ops. Built once, immutable afterwards, safe from several threads.
const OpRegistry& CoreOps();
const OpDef* CoreOp(std::string_view name);  // checked: the name must exist

// Family registrations, called by CoreOps in this order (ir/ops/<family>.cc).
void RegisterElementwiseOps(OpRegistry& registry);
void RegisterDataMovementOps(OpRegistry& registry);
void RegisterReductionOps(OpRegistry& registry);
void RegisterContractionOps(OpRegistry& registry);
void RegisterLinearAlgebraOps(OpRegistry& registry);
void RegisterConvolutionOps(OpRegistry& registry);
void RegisterPoolingOps(OpRegistry& registry);
void RegisterNormalizationOps(OpRegistry& registry);
void RegisterLossOps(OpRegistry& registry);
void RegisterIndexingOps(OpRegistry& registry);
void RegisterScatterOps(OpRegistry& registry);
void RegisterRandomOps(OpRegistry& registry);
void RegisterUpdateOps(OpRegistry& registry);

}  // namespace hyper::ir
