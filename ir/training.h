// From an inference-shaped forward function to a training module.
// Thread safety: pure functions on the modules given.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostics.h"
#include "base/status.h"
#include "ir/builder.h"
#include "ir/graph.h"

namespace hyper::ir {

// Numbers the nodes of the forward functions; equal nodes of @step and @eval that come from one
// source op share a number. Must run before autodiff and before anything is cloned.
void AssignOpIds(Function& function);  // keeps numbers already given, counts on behind them
// Numbers all functions at once: nodes that agree in source, op and their count among equals share
// a number.
void AssignOpIds(Module& module);

// Appends to `function` the backward nodes of `loss` (a scalar) with cotangent `seed` (a scalar of
// the same dtype) and returns d loss / d wanted[i], invalid where `wanted[i]` does not influence
// the loss. Nodes between no wanted value and the loss get no gradient and need none, so an op
// without gradient there is no error. All nodes on the way that cannot be differentiated are
// reported in one go, each with op, source node and the reason. Contributions to one value are
// summed in program order of their consumers.
Result<std::vector<ValueId>> AppendGradients(
    Function& function, const std::vector<std::pair<ValueId, ValueId>>& loss_and_seed,
    std::span<const ValueId> wanted, Diagnostics* diagnostics);

enum class LossKind { kCrossEntropy, kMse, kBceWithLogits, kOutput };

struct LossTerm {
  LossKind kind = LossKind::kOutput;
  std::string name;     // unique: "loss", "loss.1"; names the seed scalar "seed.<name>"
  ValueId prediction;   // logits [.., C] (class axis `class_axis`), prediction, or the output
  ValueId target;       // labels or target; invalid for kOutput
  int class_axis = -1;  // cross entropy: 1 for [N,C,d..] as ONNX, last otherwise
  std::optional<int64_t> ignore_index;
  double weight = 1.0;
};

// Adds the term's nodes to `function` and returns its sum over the micro-batch (scalar). The mean
// is never formed here: the seed carries weight / global count, so gradients are already means.
Result<ValueId> AppendLossSum(Builder& builder, const LossTerm& term);
// Adds the number of contributions of the term in a micro-batch (i64 scalar computed from the
// labels) or returns the constant count when shapes alone decide it.
struct LossCount {
  ValueId value;
  int64_t constant = 0;
};
Result<LossCount> AppendLossCount(Builder& builder, const LossTerm& term, ValueId target);

enum class OptimizerKind { kSgd, kMomentum, kAdam };
// The shape of the update alone: its values (learning rate, momentum, betas, epsilon, weight decay)
// are scalars that the runtime sets.
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kSgd;
  bool nesterov = false;
  bool decoupled_decay = false;  // AdamW
};
// The optimizer's values as inputs of its op: kScalar names in order, between clip and step.
std::span<const std::string_view> OptimizerScalars(OptimizerKind kind);

// A running statistic of BatchNorm: state tensor, the batch statistic computed in @step (already
// corrected to the population or unbiased variance) and the ONNX momentum.
struct RunningStatistic {
  std::string state_name;
  ValueId batch_value;
  double momentum = 0.9;
};

// What the front end hands over. `step` holds the forward pass in training mode and `eval` the one
// in evaluation mode; both take kInput, kParameter, kFrozen, kState arguments with equal names.
struct ForwardModel {
  Module module;                             // functions @step and @eval, tensors
  std::vector<LossTerm> step_losses;         // values of @step
  std::vector<LossTerm> eval_losses;         // the same terms as values of @eval
  std::vector<RunningStatistic> statistics;  // values of @step
};

// Builds @count, @step (with backward and accumulation), @update and @eval. Results of @step:
// "loss.<term>" (sum over this micro-batch, a scalar; the runtime adds them up in f64), every
// gradient accumulator (aliasing its kGradient argument) in the order in which the gradients become
// ready, and every statistic accumulator. Results of @eval: "loss.<term>" sums and the model
// outputs. Parameters that do not reach the loss get no gradient; they are listed in `unreached`
// and become kFrozen. Further names: @count returns an i64 "count.<term>" for every term (a
// constant where shapes decide it); @grad_norm returns an f64 "grad_norm_sq.<parameter>" for every
// parameter; @stat_weight exists only with statistics. @update always takes the clip coefficient,
// so `clip` changes no function.
Result<Module> BuildTrainingModule(ForwardModel model, const OptimizerSpec& optimizer, bool clip,
                                   Diagnostics* diagnostics, std::vector<std::string>* unreached);

}  // namespace hyper::ir
