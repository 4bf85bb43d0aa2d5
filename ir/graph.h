// The core IR: a Module of Functions, each a straight-line SSA program over static shapes.
// Program order is execution order. Every value remembers the tensor of the source model it came
// from, every node the source node and (for backward nodes) the forward op it belongs to.
//
// A training module has these functions (see ir/training.h):
//   @count   labels -> number of loss contributions of one micro-batch (before the first backward)
//   @step    one micro-batch: forward, loss, backward; accumulates gradients and statistics
//   @update  once per step: optimizer and running statistics
//   @eval    forward in evaluation mode, loss sum/count and model outputs
// A module without training has @eval only.
// Thread safety: none.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ir/attribute.h"
#include "ir/types.h"

namespace hyper::ir {

struct OpDef;

// What a node computes for; zero-bubble schedules tell input from weight gradients.
enum class Role : uint8_t { kForward, kInputGradient, kWeightGradient, kUpdate };
std::string_view RoleName(Role role);  // "forward", "input_grad", "weight_grad", "update"

struct Node {
  const OpDef* op = nullptr;
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Role role = Role::kForward;
  // Stable number given before autodiff (ir::AssignOpIds); a backward node carries that of its
  // forward op. -1: none. Random ops draw from this stream number.
  int64_t op_id = -1;
  std::string source;  // name of the source model's node, may be empty
};

struct Value {
  TensorType type;
  std::string name;  // name of the source tensor, may be empty
  NodeId producer;   // invalid for function arguments
  int output_index = 0;
};

enum class ArgumentKind : uint8_t {
  kInput,      // data of one micro-batch (model inputs, labels)
  kParameter,  // trained
  kFrozen,     // a weight that is not trained
  kState,      // persistent, changed by running (BatchNorm running statistics), not by gradients
  kGradient,   // accumulator over micro-batches, one per parameter, same name
  kStatistic,  // accumulator over micro-batches for a kState of the same name
  kOptimizer,  // optimizer state of the parameter of the same name; `slot` tells which
  kScalar,     // set by the runtime before a function runs; `name` is one of the kScalar* names
  kRng,        // i64[3]: seed, step, global micro-batch index
};
std::string_view ArgumentKindName(ArgumentKind kind);

// Names of runtime scalars (kScalar arguments).
inline constexpr std::string_view kScalarLearningRate = "lr";    // float
inline constexpr std::string_view kScalarStep = "step";          // i64, counts from 1
inline constexpr std::string_view kScalarClip = "clip_coef";     // float, 1 = no clipping
inline constexpr std::string_view kScalarMomentum = "momentum";  // f64, as the next four
inline constexpr std::string_view kScalarBeta1 = "beta1";
inline constexpr std::string_view kScalarBeta2 = "beta2";
inline constexpr std::string_view kScalarEpsilon = "epsilon";
inline constexpr std::string_view kScalarWeightDecay = "weight_decay";
inline constexpr std::string_view kScalarSeedPrefix = "seed.";  // float, seed.<loss term>
inline constexpr std::string_view kScalarStatisticScale =
    "stat_scale";  // i64[2]: see ir/training.h

struct Argument {
  ValueId value;
  ArgumentKind kind = ArgumentKind::kInput;
  std::string name;  // logical tensor name
  std::string slot;  // kOptimizer: "momentum", "m", "v"
};

struct FunctionResult {
  ValueId value;
  std::string name;
  // Index of the argument whose storage the result must reuse (accumulators, updates), or -1.
  int alias_argument = -1;
};

class Function {
 public:
  explicit Function(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  ValueId AddArgument(TensorType type, ArgumentKind kind, std::string name, std::string slot = {});
  // Appends at the end of program order (or at the insertion point, see SetInsertionPoint) and
  // creates one value per output type. The op's inference is not run: use Builder for that.
  NodeId AddNode(const OpDef* op, std::vector<ValueId> inputs, Attributes attributes,
                 std::span<const TensorType> output_types);
  void AddResult(ValueId value, std::string name, int alias_argument = -1);
  void ClearResults() { results_.clear(); }

  const std::vector<Argument>& arguments() const { return arguments_; }
  std::vector<Argument>& mutable_arguments() { return arguments_; }
  const std::vector<FunctionResult>& results() const { return results_; }
  std::vector<FunctionResult>& mutable_results() { return results_; }
  // Live nodes in program order.
  const std::vector<NodeId>& order() const { return order_; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id.index)]; }
  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id.index)]; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id.index)]; }
  Value& value(ValueId id) { return values_[static_cast<size_t>(id.index)]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  int value_count() const { return static_cast<int>(values_.size()); }
  int node_count() const { return static_cast<int>(nodes_.size()); }  // removed ones included
  // Argument index of a value, or -1.
  int ArgumentIndex(ValueId id) const;
  int FindArgument(ArgumentKind kind, std::string_view name, std::string_view slot = {}) const;

  // users()[v]: nodes that read value v, in program order, once per node.
  std::vector<std::vector<NodeId>> ComputeUsers() const;
  void ReplaceAllUses(ValueId from, ValueId to);  // node inputs and results
  void RemoveNode(NodeId id);                     // outputs must be unused
  void RemoveNodes(const std::vector<bool>& dead_by_node_index);
  // New order: a permutation of order(); the verifier checks definitions before uses.
  void SetOrder(std::vector<NodeId> order) { order_ = std::move(order); }
  // Following AddNode calls insert before this node (invalid: append).
  void SetInsertionPoint(NodeId before) { insertion_point_ = before; }
  // Drops arguments that no node and no result uses, keeping order.
  void RemoveUnusedArguments(const std::vector<ArgumentKind>& kinds);

 private:
  std::string name_;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<NodeId> order_;
  std::vector<Argument> arguments_;
  std::vector<FunctionResult> results_;
  NodeId insertion_point_;
};

// A logical tensor that lives across steps (parameter, frozen weight, state).
struct PersistentTensor {
  std::string name;   // the name in the model file
  std::string alias;  // a nicer unique name from node scopes, or empty
  TensorType type;
  ArgumentKind kind = ArgumentKind::kParameter;  // kParameter, kFrozen or kState
  HostTensor initial;                            // undefined in modules parsed from text
};

struct Module {
  std::string name;
  std::vector<Function> functions;
  std::vector<PersistentTensor> tensors;  // order of first appearance in the model

  Function* Find(std::string_view function_name);
  const Function* Find(std::string_view function_name) const;
  const PersistentTensor* FindTensor(std::string_view tensor_name) const;
};

}  // namespace hyper::ir
