// From a loaded model to core ops: binds symbolic dims, decides what is a parameter, folds shape
// arithmetic and lowers every node that the outputs and losses need.
// Thread safety: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "base/status.h"
#include "frontend/onnx/load.h"
#include "ir/training.h"

namespace hyper::onnx_frontend {

// Later rules win; what no rule matches is trained. Globs match names and aliases. A rule other
// than "*" also trains a tensor that looks like a number of the formula (single values, masks).
struct ParameterRule {
  std::string glob;
  bool train = true;
  SourceLocation location;  // where a user wrote it; errors point here, without a file at the model
};

struct LossSpec {
  ir::LossKind kind = ir::LossKind::kOutput;
  std::string prediction;  // logits, prediction or scalar output: any tensor of the graph
  std::string target;      // labels or target: a graph input, or the name of a new one
  std::optional<int64_t> ignore_index;
  double weight = 1;
  SourceLocation prediction_location;  // as ParameterRule::location
};

struct ImportOptions {
  std::map<std::string, int64_t> dims;  // symbolic dim -> extent
  std::map<std::string, SourceLocation> dim_locations;  // as ParameterRule::location
  SourceLocation dims_location;                         // where missing dims belong
  std::vector<ParameterRule> rules;
  bool training = false;         // @step and @eval, else @eval alone
  std::vector<LossSpec> losses;  // training only
  bool unbiased_running_variance = false;
  // Identity(initializer) becomes a parameter of its own: exporters merge equal weights that way.
  bool unmerge_identities = true;
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
  kIdentity,  // the output of an Identity of `source`
  kOperand,   // operand `slot` of the node whose first output is `node_output`
};
std::string_view TensorPlaceName(TensorPlace place);

struct ParameterDecision {
  std::string name;
  std::string alias;  // from node scopes, when the name says nothing; may be empty
  ir::TensorType type;
  ir::HostTensor value;
  ir::ArgumentKind kind = ir::ArgumentKind::kParameter;
  bool constant = false;   // stays a constant of the program: not persistent at all
  bool can_train = false;  // a constant by its looks; a rule that names it makes it a parameter
  bool needed = true;      // by an output or a loss
  std::string reason;      // "trained", "frozen by 'embed*'", ...
  TensorPlace place = TensorPlace::kInitializer;
  std::string source;  // tensor of the file that holds the initial value
  std::string node_output;
  int slot = -1;
};

struct ParameterPlan {
  std::vector<ParameterDecision> tensors;  // every float tensor of the file, in file order
  std::map<std::string, int> index;
  // Operands that read another tensor than the file says: (first output of the node, slot).
  std::map<std::pair<std::string, int>, std::string> operands;

  const ParameterDecision* Find(const std::string& name) const;
};

// Decides for every float tensor of the file. Errors: globs that match nothing.
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
// cannot be lowered.
Result<ImportedModel> Import(const LoadedModel& model, const ImportOptions& options,
                             Diagnostics* diagnostics);

// Names of all tensors that `names` depend on, themselves included.
std::map<std::string, bool> Ancestors(const LoadedModel& model,
                                      const std::vector<std::string>& names);

}  // namespace hyper::onnx_frontend
