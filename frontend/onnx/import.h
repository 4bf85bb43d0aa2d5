// From a loaded model to core ops: binds symbolic dims, decides what is a parameter, folds shape
// arithmetic and lowers every node that the outputs and losses need.
// Thread safety: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "base/status.h"
#include "frontend/onnx/load.h"
#include "frontend/onnx/tensor_view.h"
#include "ir/training.h"

namespace hyper::onnx_frontend {

// Later rules win; what no rule matches is trained. Globs match names and aliases. A rule other
// than "*" also trains a tensor that looks like a number of the formula (single values, masks).
struct ParameterRule {
  std::string glob;
  bool train = true;
  SourceLocation location;  // where a user wrote it; errors point here, without a file at the model
};

// Parameters that are trained as one, under the first name; see tie_parameters.h.
struct TieGroup {
  std::vector<std::string> names;
  std::vector<SourceLocation> locations;  // of the names, as ParameterRule::location
};

struct LossSpec {
  ir::LossKind kind = ir::LossKind::kOutput;
  std::string prediction;  // logits, prediction or scalar output: any tensor of the graph
  std::string target;      // labels or target: a graph input, or the name of a new one
  std::optional<int64_t> ignore_index;
  // Cross entropy: axis of the classes, below zero from the end. Empty: the only axis that fits the
  // declared shape of the labels, else the last one of two or three; with more there is no default.
  std::optional<int64_t> class_axis;
  double weight = 1;
  SourceLocation prediction_location;  // as ParameterRule::location
};

// A value for an input: then it is no data, and what depends on it is known at compile time.
struct BoundInput {
  // Integers fit any integer or float type that holds them, floats any float type.
  ir::HostTensor value;
  SourceLocation location;  // as ParameterRule::location
};

struct ImportOptions {
  std::map<std::string, int64_t> dims;                  // symbolic dim -> extent
  std::map<std::string, BoundInput> bind;               // by input; their shapes bind dims too
  std::map<std::string, SourceLocation> dim_locations;  // as ParameterRule::location
  SourceLocation dims_location;                         // where missing dims belong
  std::vector<ParameterRule> rules;
  std::vector<TieGroup> ties;
  bool training = false;         // @step and @eval, else @eval alone
  std::vector<LossSpec> losses;  // training only
  bool unbiased_running_variance = false;
  // Undoes what exporters do to parameters: Identity(initializer) becomes a parameter of its own,
  // and where PyTorch's record of the program lies in the file, merged, transposed and reshaped
  // tensors are its parameters again.
  bool restore_parameters = true;
  // BatchNormalization and Dropout exactly as the file marks them (conformance tests).
  bool literal_modes = false;
  // Everything that is float in the file becomes f64, constants of the formulas included (those
  // would have lost their digits if the finished module were converted).
  bool double_precision = false;
};

// Where a persistent tensor stands in the file.
enum class TensorPlace {
  kInitializer,
  kConstantNode,
  kIdentity,  // the output of an Identity of another tensor
  kOperand,   // operands that read a tensor which holds another one, or nothing
};
std::string_view TensorPlaceName(TensorPlace place);

struct OperandSlot {
  std::string node_output;  // first output of the node
  int slot = 0;
};

struct TensorPlacement {
  TensorPlace place = TensorPlace::kInitializer;
  // The tensor in the file; for kOperand the initializer that an export adds.
  std::string tensor;
  std::vector<OperandSlot> operands;  // that an export lets read it (kOperand, removed biases)
  TensorView view;                    // how the file's tensor comes from the parameter
};

// A tensor that was merged into another one by ImportOptions::ties.
struct TiedName {
  std::string name;
  std::string alias;  // may be empty
  bool transposed = false;
};

struct ParameterDecision {
  std::string name;   // the original one where the file tells it
  std::string alias;  // of the file, or from node scopes when the name says nothing; may be empty
  ir::TensorType type;
  ir::HostTensor value;
  ir::ArgumentKind kind = ir::ArgumentKind::kParameter;
  bool constant = false;   // stays a constant of the program: not persistent at all
  bool can_train = false;  // a constant by its looks; a rule that names it makes it a parameter
  bool buffer = false;     // frozen unless a rule gives exactly its name
  bool literal = false;    // PyTorch's record says that it is a number of the formula
  bool needed = true;      // by an output or a loss
  std::string reason;      // why it is trained, frozen or a constant
  std::string cut_by;      // "'/Round' (Round): why", when that keeps the gradient away
  std::string suspicion;   // trained although it looks like no parameter: why
  std::string origin;      // what PyTorch's record says about it; empty without one
  std::string source;      // tensor of the file that holds the initial value
  std::vector<TensorPlacement> places;  // never empty
  std::vector<TiedName> tied;           // rules that match one of these names match this tensor
};

struct ParameterView {
  std::string parameter;
  TensorView view;
};

struct ParameterPlan {
  std::vector<ParameterDecision> tensors;  // every float tensor of the file, in file order
  std::map<std::string, int> index;
  // Operands that read another tensor than the file says: (first output of the node, slot).
  std::map<std::pair<std::string, int>, std::string> operands;
  // Names that stand for a parameter seen another way.
  std::map<std::string, ParameterView> views;
  std::vector<std::string> notes;     // for the user, when training
  std::vector<std::string> warnings;  // the same

  const ParameterDecision* Find(const std::string& name) const;
  // The tensor that operand `slot` of `node` reads, views looked through; "" beyond the operands.
  std::string Reads(const onnx::NodeProto& node, int slot) const;
};

// Decides for every float tensor of the file. Errors: globs that match nothing, ties of tensors
// that are no parameters or differ.
ParameterPlan PlanParameters(const LoadedModel& model, const ImportOptions& options,
                             Diagnostics* diagnostics);

// A symbolic dim of an input; an unnamed one is called "<input>.<axis>".
struct SymbolicDim {
  std::string name;
  std::vector<std::string> uses;  // "x[0]"
};
std::vector<SymbolicDim> SymbolicDims(const LoadedModel& model);

struct ImportedModel {
  // @step and @eval when training, otherwise @eval alone and no losses.
  ir::ForwardModel forward;
  ParameterPlan plan;
  std::vector<std::string> inputs;   // data arguments, labels included
  std::vector<std::string> outputs;  // results of @eval
};

// Everything that stands in the way is reported in one run: unbound dims, unknown names, nodes that
// cannot be lowered. `undecided` (may be null) receives the inputs on whose data something depends
// that must be known at compile time: ImportOptions::bind can give them values.
Result<ImportedModel> Import(const LoadedModel& model, const ImportOptions& options,
                             Diagnostics* diagnostics, std::set<std::string>* undecided = nullptr);

// Only the names: dims that the model lacks or that have no value, losses on tensors that it does
// not have, globs that match nothing. For options of which only a part is known.
void CheckImportNames(const LoadedModel& model, const ImportOptions& options,
                      Diagnostics* diagnostics);

// Names of all tensors that `names` depend on, themselves included.
std::map<std::string, bool> Ancestors(const LoadedModel& model,
                                      const std::vector<std::string>& names);

}  // namespace hyper::onnx_frontend
