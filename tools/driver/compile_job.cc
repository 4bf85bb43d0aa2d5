#include "tools/driver/compile_job.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "base/strings.h"
#include "codegen/checker.h"
#include "codegen/validate.h"
#include "frontend/onnx/export.h"
#include "ir/pass.h"
#include "ir/text.h"
#include "ir/training.h"
#include "lower/lowered.h"
#include "lower/print.h"
#include "offload/placement.h"
#include "runtime/kernels/instruction_set.h"
#include "tools/driver/bound_inputs.h"
#include "tools/driver/data_names.h"
#include "tools/driver/workspace_query.h"

namespace hyper::tools {
namespace {

constexpr std::string_view kProducer = "hyperc 0.1.0";
// Simplification of one micro-batch's program, before and after autodiff alike.
constexpr std::string_view kSimplify = "canonicalize,fuse_map_constants,cse,dce";

ir::LossKind LossKindOf(const strategy::LossTerm& term) {
  if (!term.kind) return ir::LossKind::kOutput;
  switch (*term.kind) {
    case strategy::LossKind::kCrossEntropy: return ir::LossKind::kCrossEntropy;
    case strategy::LossKind::kMse: return ir::LossKind::kMse;
    case strategy::LossKind::kBceWithLogits: return ir::LossKind::kBceWithLogits;
  }
  return ir::LossKind::kOutput;
}

onnx_frontend::LossSpec LossSpecOf(const strategy::LossTerm& term) {
  onnx_frontend::LossSpec spec;
  spec.kind = LossKindOf(term);
  spec.ignore_index = term.ignore_index;
  spec.class_axis = term.class_axis;
  spec.weight = term.weight;
  switch (spec.kind) {
    case ir::LossKind::kCrossEntropy:
    case ir::LossKind::kBceWithLogits:
      spec.prediction = term.logits;
      spec.target = term.labels;
      break;
    case ir::LossKind::kMse:
      spec.prediction = term.prediction;
      spec.target = term.target;
      break;
    case ir::LossKind::kOutput: spec.prediction = term.output; break;
  }
  return spec;
}

// Key of the strategy that names a term's prediction.
std::string PredictionKeyOf(const strategy::LossTerm& term) {
  if (!term.kind) return term.path + ".output";
  return term.path + (*term.kind == strategy::LossKind::kMse ? ".prediction" : ".logits");
}

ir::OptimizerSpec OptimizerOf(const strategy::OptimizerConfig& config) {
  ir::OptimizerSpec spec;
  using Kind = strategy::OptimizerKind;
  switch (config.kind) {
    case Kind::kSgd: spec.kind = ir::OptimizerKind::kSgd; break;
    case Kind::kMomentum:
    case Kind::kNesterov: spec.kind = ir::OptimizerKind::kMomentum; break;
    case Kind::kAdam:
    case Kind::kAdamW: spec.kind = ir::OptimizerKind::kAdam; break;
  }
  spec.nesterov = config.kind == Kind::kNesterov;
  spec.decoupled_decay = config.kind == Kind::kAdamW;
  return spec;
}

// Names in the strategy that exist nowhere in the model point at their line in the strategy.
Status RenderWithStrategy(const strategy::Strategy& strategy, const Diagnostics& diagnostics,
                          const Status& status) {
  if (status.ok() || !diagnostics.has_errors()) return status;
  return {status.code(), diagnostics.Render(strategy.source)};
}

// Facts about the loss terms that the trainer and the evaluator need beside the programs.
Result<std::vector<program::LossTerm>> LossTermsOf(const ir::ForwardModel& forward) {
  std::vector<program::LossTerm> out;
  const ir::Function* eval = forward.module.Find("eval");
  HYPER_CHECK(eval != nullptr, "a training module without @eval");
  for (const ir::LossTerm& term : forward.eval_losses) {
    program::LossTerm item;
    item.set_name(term.name);
    item.set_weight(term.weight);
    // Counted on a copy: the nodes that the count needs are not wanted here.
    ir::Function scratch = *eval;
    ir::Builder builder(&scratch);
    HYPER_ASSIGN_OR_RETURN(const ir::LossCount count,
                           ir::AppendLossCount(builder, term, term.target));
    item.set_counted(count.value.valid());
    if (!count.value.valid()) item.set_constant_count(count.constant);
    if (term.target.valid()) {
      const int argument = eval->ArgumentIndex(term.target);
      if (argument >= 0) item.set_labels(eval->arguments()[static_cast<size_t>(argument)].name);
    }
    item.set_unit_targets(term.kind == ir::LossKind::kBceWithLogits);
    if (term.kind == ir::LossKind::kCrossEntropy) {
      const ir::TensorType& logits = eval->type(term.prediction);
      const int axis = term.class_axis < 0 ? term.class_axis + logits.rank() : term.class_axis;
      item.set_class_axis(axis);
      item.set_classes(logits.dims[static_cast<size_t>(axis)]);
      for (const ir::FunctionResult& result : eval->results()) {
        if (result.value == term.prediction) item.set_prediction(result.name);
      }
      item.set_has_ignore(term.ignore_index.has_value());
      item.set_ignore_index(term.ignore_index.value_or(0));
    }
    out.push_back(std::move(item));
  }
  return out;
}

// Logits [N,K,K] without a class_axis: labels [N,K] fit both axes, and only the data knows.
void WarnOfEqualClassAxes(const ir::ForwardModel& forward, const strategy::Strategy& strategy,
                          Diagnostics* diagnostics) {
  const ir::Function* eval = forward.module.Find("eval");
  const auto& terms = strategy.train->loss;
  for (size_t i = 0; i < terms.size() && i < forward.eval_losses.size(); ++i) {
    const ir::LossTerm& term = forward.eval_losses[i];
    if (term.kind != ir::LossKind::kCrossEntropy || terms[i].class_axis) continue;
    const ir::TensorType& logits = eval->type(term.prediction);
    if (logits.rank() != 3 || logits.dims[1] != logits.dims[2]) continue;
    diagnostics->Warning(
        strategy.LocationOf(PredictionKeyOf(terms[i])),
        fmt::format(
            "the loss takes the last axis of the logits {} as the classes; axis 1 would fit "
            "the same labels",
            logits.ToString()),
        "say which it is: class_axis: 2, or class_axis: 1");
  }
}

// Samples of one micro-batch: the first extent of every input.
int64_t MicroBatchOf(const ir::Module& module) {
  for (const ir::Function& function : module.functions) {
    for (const ir::Argument& argument : function.arguments()) {
      const ir::TensorType& type = function.type(argument.value);
      if (argument.kind == ir::ArgumentKind::kInput && type.rank() > 0) return type.dims[0];
    }
  }
  return 0;
}

// What no launch could satisfy is said now.
void CheckGlobalBatch(const ir::Module& module, const strategy::Strategy& strategy,
                      Diagnostics* diagnostics) {
  if (!strategy.launch.train || !strategy.launch.train->global_batch) return;
  const int64_t global = *strategy.launch.train->global_batch;
  const int64_t micro = MicroBatchOf(module);
  const int64_t unit = micro * strategy.data_parallel.min_replicas;
  if (micro < 1 || (global >= unit && global % micro == 0)) return;
  const int64_t below = global / micro * micro;
  std::vector<std::string> usable;
  for (const int64_t value : {std::max(below, unit), std::max(below + micro, unit)}) {
    const std::string text = fmt::format("{}", value);
    if (usable.empty() || usable.back() != text) usable.push_back(text);
  }
  diagnostics->Error(
      strategy.LocationOf("train.global_batch"),
      global < unit
          ? fmt::format("train.global_batch is {}, but {} {} of one micro-batch of {} samples take "
                        "at least {}",
                        global, strategy.data_parallel.min_replicas,
                        strategy.data_parallel.min_replicas == 1 ? "replica" : "replicas", micro,
                        unit)
          : fmt::format("train.global_batch {} is no multiple of the micro-batch of {} samples",
                        global, micro),
      fmt::format("nearest that work: {}; or another extent of the batch dim in model.dims",
                  Join(usable, ", ")));
}

bool IsWeight(const ir::Function& function, ir::ValueId value) {
  const int argument = function.ArgumentIndex(value);
  if (argument < 0) return false;
  const ir::ArgumentKind kind = function.arguments()[static_cast<size_t>(argument)].kind;
  return kind == ir::ArgumentKind::kParameter || kind == ir::ArgumentKind::kFrozen;
}

// Inputs whose values are indices into weights, with the smallest extent that they index: the
// loader refuses data that would read beside a table.
std::map<std::string, int64_t> IndexInputsOf(const ir::Module& module) {
  static const std::set<std::string_view> kKeepValues = {"reshape", "transpose", "broadcast",
                                                         "copy", "cast"};
  std::map<std::string, int64_t> extents;
  for (const ir::Function& function : module.functions) {
    for (const ir::NodeId id : function.order()) {
      const ir::Node& node = function.node(id);
      if (node.op->name != "gather" || !IsWeight(function, node.inputs[0])) continue;
      ir::ValueId value = node.inputs[1];
      for (ir::NodeId producer = function.value(value).producer; producer.valid();
           producer = function.value(value).producer) {
        const ir::Node& from = function.node(producer);
        if (!kKeepValues.contains(from.op->name)) break;
        value = from.inputs[0];
      }
      const int argument = function.ArgumentIndex(value);
      if (argument < 0) continue;
      const ir::Argument& input = function.arguments()[static_cast<size_t>(argument)];
      if (input.kind != ir::ArgumentKind::kInput) continue;
      const ir::TensorType& table = function.type(node.inputs[0]);
      const int64_t extent = table.dims[static_cast<size_t>(node.attributes.Int("axis"))];
      const auto [it, fresh] = extents.emplace(input.name, extent);
      if (!fresh) it->second = std::min(it->second, extent);
    }
  }
  return extents;
}

struct BuiltModule {
  ir::Module module;
  onnx_frontend::ParameterPlan plan;
  std::vector<program::LossTerm> losses;
};

// Parameters that the importer expected to train and that autodiff found no gradient for.
void FreezeUnreached(const std::string& model, const std::vector<std::string>& unreached,
                     onnx_frontend::ParameterPlan* plan, Diagnostics* diagnostics) {
  for (const std::string& name : unreached) {
    const auto it = plan->index.find(name);
    if (it == plan->index.end()) continue;
    onnx_frontend::ParameterDecision& decision = plan->tensors[static_cast<size_t>(it->second)];
    decision.kind = ir::ArgumentKind::kFrozen;
    decision.reason = "no gradient reaches it";
  }
  if (unreached.empty()) return;
  diagnostics->Warning({model}, fmt::format("not trained, since no gradient of the loss reaches "
                                            "them: {}",
                                            Join(unreached, ", ")));
}

Result<BuiltModule> Build(const onnx_frontend::LoadedModel& model,
                          const strategy::Strategy& strategy, bool literal_modes,
                          Diagnostics* diagnostics, std::vector<std::string>* unreached) {
  const int errors = diagnostics->error_count();
  CheckDataNames(model, strategy, diagnostics);
  const int binding = diagnostics->error_count();
  onnx_frontend::ImportOptions options = ImportOptionsOf(strategy, diagnostics);
  options.literal_modes = literal_modes;
  if (diagnostics->error_count() > binding) return diagnostics->ToStatus();
  HYPER_ASSIGN_OR_RETURN(onnx_frontend::ImportedModel imported,
                         onnx_frontend::Import(model, options, diagnostics));
  BuiltModule built;
  built.plan = std::move(imported.plan);
  if (strategy.train) {
    HYPER_ASSIGN_OR_RETURN(built.losses, LossTermsOf(imported.forward));
    WarnOfEqualClassAxes(imported.forward, strategy, diagnostics);
    const strategy::LaunchTrain& launch = *strategy.launch.train;
    // The norm is part of every step's metrics, clipped or not.
    std::vector<std::string> without_gradient;
    Result<ir::Module> module =
        ir::BuildTrainingModule(std::move(imported.forward), OptimizerOf(launch.optimizer),
                                /*clip=*/true, diagnostics, &without_gradient);
    if (!module.ok()) {
      return Status(module.status().code(),
                    fmt::format("{}: train.loss: {}", model.path, module.status().message()));
    }
    built.module = std::move(*module);
    FreezeUnreached(model.path, without_gradient, &built.plan, diagnostics);
    if (unreached != nullptr) *unreached = std::move(without_gradient);
  } else {
    built.module = std::move(imported.forward.module);
  }
  HYPER_RETURN_IF_ERROR(ir::RunPipeline(kSimplify, built.module, {}, nullptr));
  CheckDataInputs(model, built.module, strategy, diagnostics);
  CheckGlobalBatch(built.module, strategy, diagnostics);
  if (diagnostics->error_count() > errors) return diagnostics->ToStatus();
  return built;
}

int MachineThreads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

// The machine that runs the job may be a larger one.
void WarnOfMemory(int64_t arena_bytes, Diagnostics* diagnostics) {
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  if (memory <= 0 || arena_bytes <= memory) return;
  diagnostics->Warning(
      {},
      fmt::format("one rank needs {}, this machine has {} of memory: hyperrun will need a larger "
                  "one, or lower the extents in model.dims",
                  FormatBytes(arena_bytes), FormatBytes(memory)));
}

bool UsesLibrary(const program::Program& program) {
  for (const program::SubProgram& sub : program.subprograms()) {
    for (const program::Instruction& instruction : sub.instructions()) {
      if (instruction.has_library()) return true;
    }
  }
  return false;
}

// The math library can be asked for its needs on this processor only.
void NoteForeignProcessor(const codegen::MarchInfo& march, Diagnostics* diagnostics) {
  const std::vector<std::string> missing = codegen::MissingCpuFeatures(march.features);
  if (missing.empty()) return;
  diagnostics->Warning(
      {}, fmt::format("workspaces are sized with this processor's kernels, which lacks {} of '{}': "
                      "hyperrun refuses the bundle there should a kernel need more",
                      Join(missing, ", "), march.march));
}

}  // namespace

onnx_frontend::ImportOptions ImportOptionsOf(const strategy::Strategy& strategy,
                                             Diagnostics* diagnostics) {
  onnx_frontend::ImportOptions options;
  options.bind = BoundInputsOf(strategy, diagnostics);
  options.dims = strategy.model.dims;
  options.dims_location = strategy.LocationOf("model.dims");
  for (const auto& [name, extent] : strategy.model.dims) {
    options.dim_locations[name] = strategy.LocationOf("model.dims." + name);
  }
  for (const strategy::ParameterRule& rule : strategy.model.parameters) {
    options.rules.push_back({rule.pattern, rule.train, strategy.LocationOf(rule.path)});
  }
  for (const strategy::TieGroup& group : strategy.model.tie) {
    onnx_frontend::TieGroup& tie = options.ties.emplace_back();
    for (size_t i = 0; i < group.names.size(); ++i) {
      tie.names.push_back(group.names[i]);
      tie.locations.push_back(strategy.LocationOf(fmt::format("{}[{}]", group.path, i)));
    }
  }
  options.training = strategy.train.has_value();
  if (strategy.train) {
    for (const strategy::LossTerm& term : strategy.train->loss) {
      options.losses.push_back(LossSpecOf(term));
      options.losses.back().prediction_location = strategy.LocationOf(PredictionKeyOf(term));
    }
    // Widened while importing: constants of formulas keep all their digits.
    options.double_precision = strategy.train->precision == strategy::Precision::kFp64;
    options.unbiased_running_variance =
        strategy.train->running_variance == strategy::RunningVariance::kUnbiased;
  }
  return options;
}

Result<ir::Module> BuildModule(const onnx_frontend::LoadedModel& model,
                               const strategy::Strategy& strategy, Diagnostics* diagnostics,
                               std::vector<std::string>* unreached) {
  Result<BuiltModule> built = Build(model, strategy, false, diagnostics, unreached);
  if (!built.ok()) return RenderWithStrategy(strategy, *diagnostics, built.status());
  return std::move(built->module);
}

Result<PlannedJob> PlanJob(const onnx_frontend::LoadedModel& model,
                           const strategy::Strategy& strategy, const CompileJobOptions& options,
                           const codegen::MarchInfo& march, Diagnostics* diagnostics) {
  PlannedJob planned;
  planned.march = march;
  CompiledJob& job = planned.job;
  Result<BuiltModule> built =
      Build(model, strategy, options.literal_modes, diagnostics, &job.unreached);
  if (!built.ok()) return RenderWithStrategy(strategy, *diagnostics, built.status());
  job.tensors = built->module.tensors;
  for (const onnx_frontend::ParameterDecision& d : built->plan.tensors) {
    job.reasons[d.name] = d.reason;
  }
  job.content.module_text = ir::Print(built->module);
  planned.index_inputs = IndexInputsOf(built->module);
  planned.losses = std::move(built->losses);

  lower::LowerOptions lower_options;
  lower_options.reference_kernels = options.reference_kernels;
  planned.threads = options.threads > 0 ? options.threads : MachineThreads();
  if (!options.reference_kernels) {
    HYPER_RETURN_IF_ERROR(runtime::CapInstructionSet(planned.march.features));
    lower_options.workspace = MakeWorkspaceQuery(planned.threads);
  }
  HYPER_ASSIGN_OR_RETURN(lower::LoweredModule lowered, lower::Lower(built->module, lower_options));
  for (const lower::LoweredFunction& function : lowered.functions) {
    planned.notes.unfused[function.name] = function.unfused;
    job.unfused.insert(job.unfused.end(), function.unfused.begin(), function.unfused.end());
  }
  offload::PlacementOptions placement;
  placement.guard_bytes = options.guard_bytes;
  placement.bucket_bytes = strategy.data_parallel.bucket_bytes;
  HYPER_ASSIGN_OR_RETURN(planned.placed, offload::Place(std::move(lowered), placement));
  job.lowered_text = lower::Print(planned.placed.module);
  planned.training = strategy.train.has_value();
  planned.min_replicas = static_cast<int>(strategy.data_parallel.min_replicas);
  planned.reduce_at_end = !strategy.data_parallel.overlap;

  codegen::BundleContent& content = job.content;
  content.manifest.producer = kProducer;
  content.manifest.model_name = built->module.name;
  content.manifest.march = planned.march.march;
  content.manifest.cpu_features = planned.march.features;
  content.strategy_yaml = strategy::PrintStrategy(strategy);
  content.launch_json = strategy.launch.ToJson();
  HYPER_ASSIGN_OR_RETURN(content.model_onnx,
                         onnx_frontend::StripWeights(model, built->plan, diagnostics));
  return planned;
}

Result<CompiledJob> FinishJob(PlannedJob planned,
                              const std::vector<std::vector<std::string>>& symbols,
                              codegen::CompiledKernels kernels, Diagnostics* diagnostics) {
  const offload::PlacedModule& placed = planned.placed;
  HYPER_ASSIGN_OR_RETURN(program::Program program, codegen::BuildProgram(placed, symbols));
  // First: what is too large fails checks for other reasons, too.
  if (program.arena_bytes() > codegen::kMaxArenaBytes) {
    return ResourceExhausted(fmt::format(
        "one rank would need {}; at most {} can be planned: lower the extents in model.dims",
        FormatBytes(program.arena_bytes()), FormatBytes(codegen::kMaxArenaBytes)));
  }
  HYPER_RETURN_IF_ERROR(codegen::CheckProgram(placed, program));
  WarnOfMemory(program.arena_bytes(), diagnostics);
  if (UsesLibrary(program)) {
    program.set_threads(planned.threads);
    NoteForeignProcessor(planned.march, diagnostics);
  }
  for (const program::LossTerm& term : planned.losses) *program.add_losses() = term;
  for (const auto& [name, extent] : planned.index_inputs) {
    program::IndexInput* input = program.add_index_inputs();
    input->set_name(name);
    input->set_extent(extent);
  }
  program.set_training(planned.training);
  program.set_min_replicas(planned.min_replicas);
  program.set_reduce_at_end(planned.reduce_at_end);

  codegen::BundleContent& content = planned.job.content;
  HYPER_ASSIGN_OR_RETURN(content.slot_data, codegen::CollectSlotData(placed, program));
  content.plan_json = codegen::PlanJson(program, planned.notes);
  content.program = std::move(program);
  content.kernels_source = std::move(kernels.source);
  content.kernels_object = std::move(kernels.object);
  return std::move(planned.job);
}

Result<CompiledJob> CompileJob(const std::string& model_path, const strategy::Strategy& strategy,
                               const CompileJobOptions& options, Diagnostics* diagnostics) {
  HYPER_ASSIGN_OR_RETURN(const codegen::MarchInfo march,
                         codegen::ResolveMarch(options.kernels.march, options.kernels.compiler));
  Result<std::unique_ptr<onnx_frontend::LoadedModel>> model =
      onnx_frontend::LoadModel(model_path, {}, diagnostics);
  if (!model.ok()) return RenderWithStrategy(strategy, *diagnostics, model.status());
  HYPER_ASSIGN_OR_RETURN(PlannedJob planned,
                         PlanJob(**model, strategy, options, march, diagnostics));
  codegen::CompileOptions kernel_options = options.kernels;
  kernel_options.march = planned.march.march;
  std::vector<std::vector<std::string>> symbols;
  HYPER_ASSIGN_OR_RETURN(codegen::CompiledKernels kernels,
                         codegen::CompileCpuKernels(planned.placed, kernel_options, &symbols));
  if (!kernels.cache_note.empty()) diagnostics->Note({}, kernels.cache_note);
  return FinishJob(std::move(planned), symbols, std::move(kernels), diagnostics);
}

}  // namespace hyper::tools
