#include "frontend/strategy/settings.h"

#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/strings.h"

namespace hyper::strategy {
namespace {

using enum ValueType;
constexpr Phase kLaunch = Phase::kLaunch;
constexpr double kMaxInt = 9007199254740992.0;  // 2^53: exact in JSON numbers of every reader

// clang-format off
constexpr Setting kSettings[] = {
    {.path = "version", .type = kInt, .required = true, .min = 1, .max = 1,
     .description = "Version of the strategy format; this release reads version 1."},

    {.path = "model", .type = kSection, .default_text = "{}",
     .description = "How the ONNX model is read."},
    {.path = "model.dims", .type = kNamedMap, .default_text = "{}",
     .description = "Values of the model's symbolic dimensions; the batch dimension is one "
                    "micro-batch of one replica."},
    {.path = "model.dims.*", .type = kInt, .min = 1, .max = kMaxInt,
     .description = "Size bound to the symbolic dimension of this name."},
    {.path = "model.parameters", .type = kSection, .default_text = "{}",
     .description = "Which parameters are trained; the later of two matching patterns wins."},
    {.path = "model.parameters.train", .type = kStringList,
     .description = "Glob patterns of the parameters to train; without this key all are trained."},
    {.path = "model.parameters.freeze", .type = kStringList,
     .description = "Glob patterns of the parameters that keep their values."},
    {.path = "model.tie", .type = kNameGroups,
     .description = "Groups of parameters of equal value (matrices may be transposed) that are "
                    "trained as one, under the first name of the group."},
    {.path = "model.bind", .type = kNamedMap, .default_text = "{}",
     .description = "Model inputs that get their value now, such as a Reshape's target; they are "
                    "no data inputs then."},
    {.path = "model.bind.*", .type = kTensor,
     .description = "Value of the input of this name: a number, nested lists of them, or a .npy "
                    "file (relative to the strategy)."},

    {.path = "train", .type = kSection,
     .description = "The training step; without this block the bundle is forward only (hyperrun "
                    "--outputs)."},
    {.path = "train.loss", .type = kSectionOrList, .required = true,
     .description = "The loss: one term, or a list of terms that are added with their weights."},
    {.path = "train.loss.kind", .type = kEnum, .choices = "cross_entropy|mse|bce_with_logits",
     .description = "How the term is computed; left out when 'output' names a finished loss."},
    {.path = "train.loss.logits", .type = kString, .required = true,
     .only_for = "cross_entropy|bce_with_logits",
     .description = "Model output with unnormalised scores."},
    {.path = "train.loss.labels", .type = kString, .required = true,
     .only_for = "cross_entropy|bce_with_logits",
     .description = "Data input with the class indices (cross_entropy) or targets in [0,1]."},
    {.path = "train.loss.ignore_index", .type = kInt, .min = -kMaxInt, .max = kMaxInt,
     .only_for = "cross_entropy",
     .description = "Label value whose positions do not count; without it every label counts."},
    {.path = "train.loss.class_axis", .type = kInt, .min = -32, .max = 31,
     .only_for = "cross_entropy",
     .description = "Axis of the logits that holds the classes, below zero from the end: 1 for "
                    "[N,C,H,W]. Without it the last axis of [N,C] and [N,T,C]; for more axes it is "
                    "needed unless the declared shape of the labels fits one axis only."},
    {.path = "train.loss.prediction", .type = kString, .required = true, .only_for = "mse",
     .description = "Model output that is compared with the target."},
    {.path = "train.loss.target", .type = kString, .required = true, .only_for = "mse",
     .description = "Data input with the values to predict."},
    {.path = "train.loss.output", .type = kString, .only_for = kNoKind,
     .description = "Scalar model output that is the loss itself, instead of a kind."},
    {.path = "train.loss.weight", .type = kFloat, .default_text = "1", .min = 0,
     .min_excluded = true, .description = "Factor of this term in the sum."},

    {.path = "train.optimizer", .type = kSection, .required = true,
     .description = "The rule that updates parameters."},
    {.path = "train.optimizer.kind", .type = kEnum, .required = true,
     .choices = "sgd|momentum|nesterov|adam|adamw", .description = "The update rule."},
    {.path = "train.optimizer.lr", .type = kFloat, .phase = kLaunch, .required = true, .min = 0,
     .description = "Learning rate before the schedule's factor."},
    {.path = "train.optimizer.momentum", .type = kFloat, .phase = kLaunch, .default_text = "0.9",
     .min = 0, .max = 1, .max_excluded = true, .only_for = "momentum|nesterov",
     .description = "Decay of the running sum of gradients."},
    {.path = "train.optimizer.betas", .type = kFloatPair, .phase = kLaunch,
     .default_text = "[0.9, 0.999]", .min = 0, .max = 1, .max_excluded = true,
     .only_for = "adam|adamw",
     .description = "Decays of the running means of the gradient and of its square."},
    {.path = "train.optimizer.eps", .type = kFloat, .phase = kLaunch, .default_text = "1e-8",
     .min = 0, .min_excluded = true, .only_for = "adam|adamw",
     .description = "Added to the root of the second moment against division by zero."},
    {.path = "train.optimizer.weight_decay", .type = kFloat, .phase = kLaunch,
     .default_text = "0", .kind_default = "adamw=0.01", .min = 0,
     .description = "Decay of the weights: decoupled for adamw, added to the gradient otherwise."},

    {.path = "train.schedule", .type = kSection, .phase = kLaunch, .default_text = "{}",
     .description = "Factor of the learning rate over the steps."},
    {.path = "train.schedule.kind", .type = kEnum, .phase = kLaunch, .default_text = "constant",
     .choices = "constant|linear|cosine", .description = "Shape of the decay after the warm-up."},
    {.path = "train.schedule.warmup", .type = kInt, .phase = kLaunch, .default_text = "0",
     .min = 0, .max = kMaxInt,
     .description = "Steps over which the factor rises linearly from 0 to 1."},
    {.path = "train.schedule.total", .type = kInt, .phase = kLaunch, .min = 1, .max = kMaxInt,
     .only_for = "linear|cosine",
     .description = "Step at which the decay ends; without it the number of steps of the run."},
    {.path = "train.schedule.min_ratio", .type = kFraction, .phase = kLaunch,
     .default_text = "0", .min = 0, .max = 1, .only_for = "linear|cosine",
     .description = "Factor at the end of the decay."},

    {.path = "train.precision", .type = kEnum, .default_text = "fp32", .choices = "fp32|fp64",
     .later = "bf16|fp16",
     .description = "Number type of the training step; fp64 is for validation."},
    {.path = "train.micro_batches", .type = kInt, .phase = kLaunch, .min = 1, .max = kMaxInt,
     .description = "Micro-batches per replica and step, whose gradients are averaged; 1 unless "
                    "'global_batch' is given."},
    {.path = "train.global_batch", .type = kInt, .phase = kLaunch, .min = 1, .max = kMaxInt,
     .description = "Samples per step over all replicas; the launch derives the micro-batches."},
    {.path = "train.clip_norm", .type = kFloat, .phase = kLaunch, .default_text = "0", .min = 0,
     .description = "Largest global gradient norm, longer gradients are scaled down; 0 is off."},
    {.path = "train.seed", .type = kInt, .phase = kLaunch, .default_text = "1", .min = 0,
     .max = kMaxInt, .description = "Seed of dropout masks and of the order of samples."},
    {.path = "train.batchnorm", .type = kSection, .default_text = "{}",
     .description = "Batch normalisation in training."},
    {.path = "train.batchnorm.running_variance", .type = kEnum, .default_text = "population",
     .choices = "population|unbiased",
     .description = "Variance kept for inference: divided by n as in ONNX (population) or by n-1 "
                    "as in PyTorch (unbiased)."},

    {.path = "mesh", .type = kReserved, .description = "Named axes of ranks within a replica."},
    {.path = "shard", .type = kReserved, .description = "Layouts of tensors over the mesh."},
    {.path = "pipeline", .type = kReserved, .description = "Pipeline stages and schedule."},
    {.path = "modules", .type = kReserved, .description = "Parts of the model on ranks apart."},
    {.path = "memory", .type = kReserved,
     .description = "Memory budgets, recomputation and offload."},

    {.path = "data_parallel", .type = kSection, .default_text = "{}",
     .description = "How replicas share the work."},
    {.path = "data_parallel.zero", .type = kInt, .default_text = "0", .choices = "0",
     .later = "1|2|3",
     .description = "Which training state is split over the replicas; 0 splits nothing."},
    {.path = "data_parallel.bucket", .type = kBytes, .default_text = "25MiB", .min = 1,
     .max = 1099511627776.0, .description = "Size of one piece of the gradient all-reduce."},
    {.path = "data_parallel.overlap", .type = kBool, .default_text = "true",
     .description = "Reduce gradients while the rest of backward runs."},
    {.path = "data_parallel.min_replicas", .type = kInt, .default_text = "1", .min = 1,
     .max = 1048576,
     .description = "Fewest replicas that memory is planned for; fewer are refused."},

    {.path = "data", .type = kSection, .phase = kLaunch, .description = "The training data."},
    {.path = "data.kind", .type = kEnum, .phase = kLaunch, .required = true,
     .choices = "idx|npy|tokens|synthetic",
     .description = "Format: IDX files (also .gz), NumPy arrays, a file of tokens, or made up."},
    {.path = "data.path", .type = kString, .phase = kLaunch,
     .description = "Folder of the idx or npy files, or the token file itself."},
    {.path = "data.dtype", .type = kEnum, .phase = kLaunch, .default_text = "uint16",
     .choices = "uint8|uint16|uint32", .only_for = "tokens",
     .description = "Element type of the token file, little-endian."},
    {.path = "data.inputs", .type = kNamedMap, .phase = kLaunch, .required = true,
     .description = "Where each model input and label comes from."},
    {.path = "data.inputs.*", .type = kNameOrSection, .phase = kLaunch,
     .description = "Source of this input; a plain name is the file (idx, npy) or the field."},
    {.path = "data.inputs.*.file", .type = kString, .phase = kLaunch,
     .description = "File with one entry per sample, below data.path (idx, npy)."},
    {.path = "data.inputs.*.field", .type = kString, .phase = kLaunch,
     .description = "tokens: 'tokens' or 'next_tokens'; synthetic: 'normal', 'uniform' or "
                    "'integers'."},
    {.path = "data.inputs.*.scale", .type = kFloat, .phase = kLaunch,
     .description = "Factor applied to the stored values first; 1 when left out."},
    {.path = "data.inputs.*.mean", .type = kFloat, .phase = kLaunch,
     .description = "Subtracted after scaling; 0 when left out."},
    {.path = "data.inputs.*.std", .type = kFloat, .phase = kLaunch, .min = 0,
     .min_excluded = true, .description = "Divisor after the subtraction; 1 when left out."},
    {.path = "data.inputs.*.low", .type = kFloat, .phase = kLaunch,
     .description = "synthetic: smallest value of 'uniform' and 'integers'; 0 when left out."},
    {.path = "data.inputs.*.high", .type = kFloat, .phase = kLaunch,
     .description = "synthetic: upper end, excluded, of 'uniform' (1 when left out) and "
                    "'integers' (needed)."},
    {.path = "data.eval", .type = kSection, .phase = kLaunch,
     .description = "Held-out data; what is left out is as for training, input by input."},
    {.path = "data.eval.kind", .type = kEnum, .phase = kLaunch,
     .choices = "idx|npy|tokens|synthetic", .description = "Format of the held-out data."},
    {.path = "data.eval.path", .type = kString, .phase = kLaunch,
     .description = "Folder or token file of the held-out data."},
    {.path = "data.eval.dtype", .type = kEnum, .phase = kLaunch, .choices = "uint8|uint16|uint32",
     .only_for = "tokens", .description = "Element type of the held-out token file."},
    {.path = "data.eval.inputs", .type = kNamedMap, .phase = kLaunch,
     .description = "Where each input comes from in the held-out data."},
    {.path = "data.eval.inputs.*", .type = kNameOrSection, .phase = kLaunch,
     .description = "Source of this input in the held-out data."},
    {.path = "data.eval.inputs.*.file", .type = kString, .phase = kLaunch,
     .description = "File with one entry per held-out sample (idx, npy)."},
    {.path = "data.eval.inputs.*.field", .type = kString, .phase = kLaunch,
     .description = "Field as in data.inputs."},
    {.path = "data.eval.inputs.*.scale", .type = kFloat, .phase = kLaunch,
     .description = "Factor; that of training when left out."},
    {.path = "data.eval.inputs.*.mean", .type = kFloat, .phase = kLaunch,
     .description = "Subtracted value; that of training when left out."},
    {.path = "data.eval.inputs.*.std", .type = kFloat, .phase = kLaunch, .min = 0,
     .min_excluded = true, .description = "Divisor; that of training when left out."},
    {.path = "data.eval.inputs.*.low", .type = kFloat, .phase = kLaunch,
     .description = "Lower end; that of training when left out."},
    {.path = "data.eval.inputs.*.high", .type = kFloat, .phase = kLaunch,
     .description = "Upper end; that of training when left out."},
    {.path = "data.shuffle", .type = kBool, .phase = kLaunch, .default_text = "true",
     .description = "Visit the samples of each epoch in a random order derived from train.seed."},
    {.path = "data.prefetch", .type = kInt, .phase = kLaunch, .default_text = "2", .min = 0,
     .max = 64, .description = "Micro-batches read ahead in the background; 0 reads in line."},

    {.path = "run", .type = kSection, .phase = kLaunch, .default_text = "{}",
     .description = "Length, reports and checkpoints of a run."},
    {.path = "run.dir", .type = kString, .phase = kLaunch, .default_text = "run",
     .description = "Folder for metrics, logs and checkpoints."},
    {.path = "run.steps", .type = kInt, .phase = kLaunch, .min = 0, .max = kMaxInt,
     .description = "Optimizer steps; hyperrun needs --steps when it is left out."},
    {.path = "run.log_every", .type = kInt, .phase = kLaunch, .default_text = "10", .min = 1,
     .max = kMaxInt, .description = "Steps between progress lines."},
    {.path = "run.eval_every", .type = kInt, .phase = kLaunch, .default_text = "0", .min = 0,
     .max = kMaxInt,
     .description = "Steps between evaluations on data.eval; 0 evaluates only at the end."},
    {.path = "run.checkpoint", .type = kSection, .phase = kLaunch, .default_text = "{}",
     .description = "Saved states."},
    {.path = "run.checkpoint.every", .type = kInt, .phase = kLaunch, .default_text = "0",
     .min = 0, .max = kMaxInt,
     .description = "Steps between checkpoints; 0 saves only the final state."},
    {.path = "run.checkpoint.keep", .type = kInt, .phase = kLaunch, .default_text = "3",
     .min = 1, .max = 1000000, .description = "How many checkpoints are kept, the newest ones."},
    {.path = "run.checkpoint.dir", .type = kString, .phase = kLaunch,
     .description = "Folder of the checkpoints; 'checkpoints' below run.dir when left out."},
};
// clang-format on

std::string Number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return fmt::format("{}", static_cast<long long>(value));
  }
  return fmt::format("{}", value);
}

std::string DescribeRange(const Setting& setting) {
  const bool low = std::isfinite(setting.min) && setting.min > -kMaxInt;
  const bool high = std::isfinite(setting.max) && setting.max < kMaxInt;
  const auto bytes = [&setting](double value) {
    return setting.type == kBytes ? FormatBytes(static_cast<int64_t>(value)) : Number(value);
  };
  if (low && high) {
    if (setting.min == setting.max) return fmt::format(": {}", Number(setting.min));
    return fmt::format(" from {} to {}{}{}", bytes(setting.min), bytes(setting.max),
                       setting.min_excluded ? ", lower end excluded" : "",
                       setting.max_excluded ? ", upper end excluded" : "");
  }
  if (low && setting.min_excluded) return fmt::format(" above {}", bytes(setting.min));
  if (low) return fmt::format(", at least {}", bytes(setting.min));
  return {};
}

}  // namespace

std::span<const Setting> AllSettings() { return kSettings; }

const Setting* FindSetting(std::string_view table_path) {
  for (const Setting& setting : kSettings) {
    if (setting.path == table_path) return &setting;
  }
  return nullptr;
}

std::vector<const Setting*> ChildSettings(std::string_view table_path) {
  std::vector<const Setting*> children;
  for (const Setting& setting : kSettings) {
    std::string_view path = setting.path;
    if (!table_path.empty()) {
      if (!path.starts_with(table_path) || path.size() <= table_path.size() ||
          path[table_path.size()] != '.') {
        continue;
      }
      path.remove_prefix(table_path.size() + 1);
    }
    if (path.find('.') == std::string_view::npos) children.push_back(&setting);
  }
  return children;
}

std::string_view LeafName(std::string_view path) {
  return path.substr(path.rfind('.') + 1);  // npos + 1 == 0: the whole path
}

std::string ChildPath(std::string_view parent, std::string_view name) {
  return parent.empty() ? std::string(name) : fmt::format("{}.{}", parent, name);
}

std::vector<std::string> SplitChoices(std::string_view choices) {
  std::vector<std::string> parts;
  while (!choices.empty()) {
    const size_t end = choices.find('|');
    parts.emplace_back(choices.substr(0, end));
    choices = end == std::string_view::npos ? std::string_view{} : choices.substr(end + 1);
  }
  return parts;
}

bool HasChoice(std::string_view choices, std::string_view value) {
  for (const std::string& choice : SplitChoices(choices)) {
    if (choice == value) return true;
  }
  return false;
}

bool IsContainer(ValueType type) {
  return type == kSection || type == kSectionOrList || type == kNamedMap;
}

std::string_view DefaultFor(const Setting& setting, std::string_view kind) {
  const size_t equals = setting.kind_default.find('=');
  if (equals != std::string_view::npos && setting.kind_default.substr(0, equals) == kind) {
    return setting.kind_default.substr(equals + 1);
  }
  return setting.default_text;
}

bool InLaunchConfig(const Setting& setting) {
  return setting.phase == Phase::kLaunch || setting.path == "train" ||
         setting.path == "train.optimizer" || setting.path == "train.optimizer.kind";
}

std::string DescribeType(const Setting& setting) {
  if (!setting.choices.empty()) {
    const std::vector<std::string> choices = SplitChoices(setting.choices);
    return choices.size() == 1 ? choices[0] : fmt::format("one of {}", Join(choices, ", "));
  }
  switch (setting.type) {
    case kSection: return "a map";
    case kSectionOrList: return "a map or a list of maps";
    case kNamedMap: return "a map of names";
    case kNameOrSection: return "a name or a map";
    case kInt: return fmt::format("an integer{}", DescribeRange(setting));
    case kFloat: return fmt::format("a number{}", DescribeRange(setting));
    case kFraction: return fmt::format("a number or percentage{}", DescribeRange(setting));
    case kBool: return "true or false";
    case kString: return "text";
    case kEnum: return "a word";
    case kBytes: return fmt::format("a size such as 25MiB{}", DescribeRange(setting));
    case kStringList: return "a list of texts";
    case kFloatPair: return fmt::format("two numbers [a, b]{}", DescribeRange(setting));
    case kNameGroups: return "a list of lists of two or more names";
    case kTensor: return "a number, true or false, nested lists of them, or a .npy file";
    case kReserved: return "empty in this version";
  }
  return {};
}

}  // namespace hyper::strategy
