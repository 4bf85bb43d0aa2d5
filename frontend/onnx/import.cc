#include "frontend/onnx/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/strings.h"
#include "frontend/onnx/bound_inputs.h"
#include "frontend/onnx/import_function.h"

namespace hyper::onnx_frontend {
namespace {

using ir::ArgumentKind;
using ir::ValueId;

using InputTypes = std::vector<std::pair<std::string, ir::TensorType>>;

class ModelImporter {
 public:
  ModelImporter(const LoadedModel& model, const ImportOptions& options, Diagnostics* diagnostics,
                std::set<std::string>* undecided = nullptr)
      : model_(model), options_(options), diagnostics_(diagnostics), undecided_(undecided) {}

  Result<ImportedModel> Run() {
    const int errors = diagnostics_->error_count();
    auto failed = [&] { return diagnostics_->error_count() > errors; };
    ResolveNames();
    if (!failed()) CheckTrains();
    if (failed()) CheckNodes();  // the rest of what stands in the way, as far as it can be told
    if (failed()) return diagnostics_->ToStatus();
    NoteDecisions();
    AddTensors();
    ir::Module& module = imported_.forward.module;
    module.name = model_.graph().name();
    if (options_.training) {
      ir::Function step("step");
      Diagnostics repeated;  // @eval needs every node of @step and reports the same problems
      FunctionImporter importer = Importer(true, &step, &repeated);
      importer.ImportNodes(LossNames());
      KeepNotes(repeated);
      AddLosses(importer, &imported_.forward.step_losses,
                repeated.has_errors() ? nullptr : diagnostics_);
      for (const auto& s : importer.events().statistics) {
        imported_.forward.statistics.push_back({s.state, s.batch_value, s.momentum});
      }
      module.functions.push_back(std::move(step));
      step_errors_ = std::move(repeated);
    }
    ir::Function eval("eval");
    FunctionImporter importer = Importer(false, &eval, diagnostics_);
    std::vector<std::string> wanted = LossNames();
    for (const auto& output : model_.graph().output()) wanted.push_back(output.name());
    importer.ImportNodes(wanted);
    if (undecided_ != nullptr) *undecided_ = importer.undecided();
    if (!failed() && step_errors_.has_errors()) {
      // Only training meets these (unbiased variance of one value, ratios that depend on data).
      for (const Diagnostic& d : step_errors_.items()) diagnostics_->Add(d);
    }
    if (failed()) return diagnostics_->ToStatus();
    AddLosses(importer, &imported_.forward.eval_losses, diagnostics_);
    AddResults(importer, &eval);
    if (failed()) return diagnostics_->ToStatus();
    for (const ir::Argument& a : eval.arguments()) {
      if (a.kind == ArgumentKind::kInput) imported_.inputs.push_back(a.name);
    }
    module.functions.push_back(std::move(eval));
    ir::AssignOpIds(module);
    return std::move(imported_);
  }

  void ResolveNames() {
    BindInputs();
    CheckNames();
    imported_.plan = PlanParameters(model_, options_, diagnostics_);
  }

 private:
  FunctionImporter Importer(bool training, ir::Function* function, Diagnostics* diagnostics) {
    ImportMode mode;
    mode.training = training;
    mode.literal = options_.literal_modes;
    mode.unbiased_variance = options_.unbiased_running_variance;
    mode.double_precision = options_.double_precision;
    FunctionImporter importer(model_, imported_.plan, mode, function, diagnostics);
    for (const auto& [name, value] : bound_) importer.AddBound(name, value);
    importer.AddArguments(inputs_);
    return importer;
  }

  void Error(std::string message, std::string help = {}) {
    diagnostics_->Error({model_.path}, std::move(message), std::move(help));
  }
  // About something that the user wrote at `location`, if that is known.
  void ErrorAt(const SourceLocation& location, std::string message, std::string help = {}) {
    diagnostics_->Error(location.file.empty() ? SourceLocation{model_.path} : location,
                        std::move(message), std::move(help));
  }
  SourceLocation DimLocation(const std::string& name) const {
    const auto it = options_.dim_locations.find(name);
    return it == options_.dim_locations.end() ? SourceLocation{} : it->second;
  }

  std::vector<std::string> LossNames() const {
    std::vector<std::string> names;
    for (const LossSpec& loss : options_.losses) {
      names.push_back(loss.prediction);
      if (produced_.count(loss.target) > 0) names.push_back(loss.target);
    }
    return names;
  }

  void BindInputs() {
    BoundValues given = BindValues(model_, options_, diagnostics_);
    bound_ = std::move(given.values);
    dims_ = std::move(given.dims);
    std::vector<std::string> known;
    std::vector<std::string> unbound;
    for (const SymbolicDim& dim : SymbolicDims(model_)) {
      known.push_back(dim.name);
      if (dims_.count(dim.name) == 0 && UsedByData(dim)) {
        unbound.push_back(fmt::format("'{}' (of {})", dim.name, Join(dim.uses, ", ")));
      }
    }
    if (!unbound.empty()) {
      ErrorAt(options_.dims_location,
              fmt::format("symbolic dims without a value: {}", Join(unbound, ", ")),
              "give each one an extent under model.dims");
    }
    for (const auto& [name, extent] : options_.dims) {
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        ErrorAt(DimLocation(name),
                fmt::format("no input has a symbolic dim '{}'; the model has {}", name,
                            known.empty() ? "none" : Join(known, ", ")),
                DidYouMean(name, known));
      } else if (extent < 1) {
        ErrorAt(
            DimLocation(name),
            fmt::format("dim '{}' is bound to {}; a positive extent is expected", name, extent));
      }
    }
    for (const onnx::ValueInfoProto* input : model_.inputs) {
      if (bound_.count(input->name()) > 0) continue;
      if (!input->type().has_tensor_type()) {
        Error(RefusalMessage(Refusal::kSequences,
                             fmt::format("input '{}' is not a tensor", input->name())));
        continue;
      }
      const auto& tensor = input->type().tensor_type();
      const auto dtype = DTypeFromOnnx(tensor.elem_type());
      if (!dtype.has_value()) {
        Error(RefusalMessage(RefusalOfElementType(tensor.elem_type()),
                             fmt::format("input '{}' has element type {}", input->name(),
                                         OnnxTypeName(tensor.elem_type()))));
        continue;
      }
      if (!tensor.has_shape()) {
        Error(fmt::format("input '{}' declares no shape; its rank must be known", input->name()));
        continue;
      }
      ir::TensorType type{*dtype, {}};
      for (int i = 0; i < tensor.shape().dim_size(); ++i) {
        const auto& dim = tensor.shape().dim(i);
        const auto bound = dims_.find(DimName(*input, i));
        type.dims.push_back(dim.has_dim_value()    ? dim.dim_value()
                            : bound == dims_.end() ? 1
                                                   : bound->second);
      }
      if (auto count = CheckedElementCount(type.dims, int64_t{1} << 40); !count.ok()) {
        Error(fmt::format("input '{}': {}", input->name(), count.status().message()));
        continue;
      }
      inputs_.emplace_back(input->name(), type);
    }
  }

  // Refused values of bound inputs leave dims without an extent that nobody misses.
  bool UsedByData(const SymbolicDim& dim) const {
    return std::any_of(dim.uses.begin(), dim.uses.end(), [&](const std::string& use) {
      return options_.bind.count(use.substr(0, use.rfind('['))) == 0;
    });
  }

  void CheckNames() {
    std::vector<std::string> outputs;
    for (const auto& output : model_.graph().output()) outputs.push_back(output.name());
    for (const auto& input : model_.graph().input()) produced_.insert(input.name());
    for (const auto& tensor : model_.tensors) produced_.insert(tensor.name);
    for (const auto& node : model_.graph().node()) {
      for (const std::string& output : node.output()) produced_.insert(output);
    }
    if (!options_.training) return;
    if (options_.losses.empty()) Error("training needs a loss");
    for (const LossSpec& loss : options_.losses) {
      if (produced_.count(loss.prediction) > 0 && !loss.prediction.empty()) continue;
      // Any tensor may be named, so the nearest of all of them when no output is near.
      std::string help = DidYouMean(loss.prediction, outputs);
      if (help.empty()) {
        const std::vector<std::string> all(produced_.begin(), produced_.end());
        help = DidYouMean(loss.prediction, all);
      }
      ErrorAt(loss.prediction_location,
              fmt::format(
                  "the loss names tensor '{}', which the model does not have; its outputs are {}",
                  loss.prediction, Join(outputs, ", ")),
              std::move(help));
    }
  }

  void NoteDecisions() {
    for (const ParameterDecision& d : imported_.plan.tensors) {
      if (d.places.front().place == TensorPlace::kIdentity && !d.constant) {
        diagnostics_->Note(
            {model_.path},
            fmt::format("'{}' is an Identity of '{}': a weight of its own", d.name, d.source));
      }
      // Names that an exporter made up are numbers for certain and need no word.
      if (options_.training && d.constant && d.can_train && d.needed &&
          d.reason.starts_with("a single")) {
        diagnostics_->Note({model_.path}, fmt::format("'{}' is not trained: {}", d.name, d.reason));
      }
    }
    if (!options_.training) return;
    for (const std::string& note : imported_.plan.notes) diagnostics_->Note({model_.path}, note);
    for (const std::string& warning : imported_.plan.warnings) {
      diagnostics_->Warning({model_.path}, warning);
    }
  }

  // Training must train something; says what became of the weights.
  void CheckTrains() {
    if (!options_.training || options_.losses.empty()) return;
    std::map<std::string, std::vector<std::string>> why;
    for (const ParameterDecision& d : imported_.plan.tensors) {
      if (d.constant || !d.needed || d.reason.starts_with("running statistic")) continue;
      if (d.kind == ArgumentKind::kParameter) return;
      why[d.reason].push_back(d.name);
    }
    std::string message = fmt::format("nothing to train: no weight of {} gets a gradient from '{}'",
                                      model_.path, options_.losses.front().prediction);
    if (why.empty()) message += ", which depends on no weight";
    for (const auto& [reason, names] : why) {
      message += fmt::format("; {} {}: {}", names.size(), names.size() == 1 ? "weight" : "weights",
                             reason);
    }
    ErrorAt(options_.losses.front().prediction_location, std::move(message),
            why.empty() ? "name an output that is computed from weights" : "");
  }

  // Nodes that cannot be imported whatever their operands are.
  void CheckNodes() {
    std::vector<std::string> wanted = LossNames();
    for (const auto& output : model_.graph().output()) wanted.push_back(output.name());
    const std::map<std::string, bool> needed = Ancestors(model_, wanted);
    for (int i = 0; i < model_.graph().node_size(); ++i) {
      const onnx::NodeProto& node = model_.graph().node(i);
      if (std::none_of(node.output().begin(), node.output().end(),
                       [&](const std::string& o) { return needed.count(o) > 0; })) {
        continue;
      }
      const Status status = Importable(node, model_.node_opset[static_cast<size_t>(i)]);
      if (!status.ok()) diagnostics_->Error({NodeLocation(model_.path, node)}, status.message());
    }
  }

  void KeepNotes(const Diagnostics& from) {
    for (const Diagnostic& d : from.items()) {
      if (d.severity != Severity::kError) diagnostics_->Add(d);
    }
  }

  void AddTensors() {
    for (const ParameterDecision& d : imported_.plan.tensors) {
      if (d.constant || !d.needed) continue;
      ir::HostTensor value = d.value;
      if (options_.double_precision && d.type.dtype == ir::DType::kF32) {
        value = ConvertTensor(value, ir::DType::kF64);
      }
      imported_.forward.module.tensors.push_back({d.name, d.alias, value.type(), d.kind, value});
    }
  }

  // Null diagnostics: an error before made the values incomplete, so problems here say nothing.
  void AddLosses(FunctionImporter& importer, std::vector<ir::LossTerm>* terms,
                 Diagnostics* diagnostics) {
    for (size_t i = 0; i < options_.losses.size(); ++i) {
      const LossSpec& spec = options_.losses[i];
      const std::optional<ValueId> prediction = importer.ValueOf(spec.prediction);
      if (!prediction.has_value()) continue;
      ir::LossTerm term;
      term.kind = spec.kind;
      term.name = i == 0 ? "loss" : fmt::format("loss.{}", i);
      term.prediction = *prediction;
      term.ignore_index = spec.ignore_index;
      term.weight = spec.weight;
      if (Status s = FinishLoss(importer, spec, &term); !s.ok() && diagnostics != nullptr) {
        diagnostics->Error(spec.prediction_location.file.empty() ? SourceLocation{model_.path}
                                                                 : spec.prediction_location,
                           fmt::format("loss on '{}': {}", spec.prediction, s.message()));
      }
      terms->push_back(term);
    }
  }

  // "axis 1: 21 classes, labels [8,64,64]" for every axis behind the batch.
  static std::string DescribeClassAxes(const ir::TensorType& logits) {
    std::vector<std::string> axes;
    for (int axis = 1; axis < logits.rank(); ++axis) {
      ir::Dims labels = logits.dims;
      labels.erase(labels.begin() + axis);
      axes.push_back(fmt::format("{}: {} classes, labels of shape {}", axis,
                                 logits.dims[static_cast<size_t>(axis)], FormatDims(labels)));
    }
    return Join(axes, "; ");
  }

  // `labels`: their type where it is known, else null. See LossSpec::class_axis.
  static Result<int> ClassAxisOf(const LossSpec& spec, const ir::TensorType& logits,
                                 const ir::TensorType* labels) {
    const int rank = logits.rank();
    if (spec.class_axis) {
      if (*spec.class_axis >= -rank && *spec.class_axis < rank) {
        return static_cast<int>(*spec.class_axis < 0 ? *spec.class_axis + rank : *spec.class_axis);
      }
      return InvalidArgument(
          fmt::format("class_axis is {}, the logits are {}; accepted are {} to {}",
                      *spec.class_axis, logits.ToString(), -rank, rank - 1));
    }
    if (labels != nullptr && rank > 2) {
      std::vector<int> fits;
      for (int axis = 0; axis < rank; ++axis) {
        ir::Dims rows = logits.dims;
        rows.erase(rows.begin() + axis);
        if (rows == labels->dims) fits.push_back(axis);
      }
      if (fits.size() == 1) return fits[0];
    }
    if (rank <= 3) return rank - 1;
    return InvalidArgument(
        fmt::format("which axis of the logits {} holds the classes? Set class_axis (axis {})",
                    logits.ToString(), DescribeClassAxes(logits)));
  }

  Status FinishLoss(FunctionImporter& importer, const LossSpec& spec, ir::LossTerm* term) {
    const ir::TensorType type = importer.builder().type(term->prediction);
    if (!ir::IsFloat(type.dtype)) {
      return InvalidArgument(
          fmt::format("it has type {}; a float tensor is expected", type.ToString()));
    }
    if (spec.kind == ir::LossKind::kOutput) {
      if (type.elements() != 1) {
        return InvalidArgument(
            fmt::format("it has type {}; a scalar is expected", type.ToString()));
      }
      term->prediction = importer.builder().Reshape(term->prediction, {});
      return Status::Ok();
    }
    if (spec.target.empty()) return InvalidArgument("no target is named");
    ir::TensorType target = type;
    if (spec.kind == ir::LossKind::kCrossEntropy) {
      if (type.rank() < 2) {
        return InvalidArgument(
            fmt::format("logits have type {}; rank 2 or more is expected", type.ToString()));
      }
      const Tensor* given = importer.Find(spec.target);
      HYPER_ASSIGN_OR_RETURN(term->class_axis,
                             ClassAxisOf(spec, type, given == nullptr ? nullptr : &given->type));
      target = {ir::DType::kI64, type.dims};
      target.dims.erase(target.dims.begin() + term->class_axis);
      if (given != nullptr && given->type.dtype == ir::DType::kI32) {
        target.dtype = ir::DType::kI32;
      }
    }
    HYPER_ASSIGN_OR_RETURN(term->target, importer.DataArgument(spec.target, target));
    return Status::Ok();
  }

  void AddResults(FunctionImporter& importer, ir::Function* eval) {
    std::set<ValueId> returned;
    for (const auto& output : model_.graph().output()) {
      const std::optional<ValueId> found = importer.ValueOf(output.name());
      if (const Tensor* t = importer.Find(output.name()); t != nullptr && !t->is_tensor()) {
        Error(RefusalMessage(Refusal::kSequences,
                             fmt::format("output '{}' is not a tensor", output.name())));
        continue;
      }
      if (!found.has_value()) {
        Error(fmt::format("output '{}' could not be computed", output.name()));
        continue;
      }
      CheckDeclared(output, importer.builder().type(*found));
      ValueId value = *found;
      // Arguments and values returned twice need storage of their own.
      if (eval->ArgumentIndex(value) >= 0 || !returned.insert(value).second) {
        importer.builder().SetContext(ir::Role::kForward, -1, output.name());
        value = importer.builder().Add1("copy", {value});
      }
      eval->AddResult(value, output.name());
      imported_.outputs.push_back(output.name());
    }
  }

  void CheckDeclared(const onnx::ValueInfoProto& output, const ir::TensorType& type) {
    if (!output.type().has_tensor_type()) return;
    const auto& declared = output.type().tensor_type();
    std::string text;
    bool same = true;
    ir::DType dtype = type.dtype;
    if (options_.double_precision && dtype == ir::DType::kF64 &&
        declared.elem_type() == onnx::TensorProto::FLOAT) {
      dtype = ir::DType::kF32;
    }
    if (declared.elem_type() != 0 && declared.elem_type() != DTypeToOnnx(dtype)) {
      Error(fmt::format("output '{}' is declared as {} but is {}", output.name(),
                        OnnxTypeName(declared.elem_type()), OnnxTypeName(DTypeToOnnx(type.dtype))));
      return;
    }
    if (!declared.has_shape()) return;
    same = declared.shape().dim_size() == type.rank();
    std::vector<std::string> extents;
    for (int i = 0; i < declared.shape().dim_size(); ++i) {
      const auto& dim = declared.shape().dim(i);
      extents.push_back(dim.has_dim_value()       ? std::to_string(dim.dim_value())
                        : dim.dim_param().empty() ? "?"
                                                  : dim.dim_param());
      if (same && dim.has_dim_value()) same = dim.dim_value() == type.dims[static_cast<size_t>(i)];
    }
    if (same) return;
    const std::string message =
        fmt::format("output '{}' is declared as [{}] but is {}", output.name(), Join(extents, ","),
                    FormatDims(type.dims));
    // Exporters write the example's extent where only the inputs were declared symbolic.
    if (SymbolicDims(model_).empty() || declared.shape().dim_size() != type.rank()) {
      Error(message);
    } else {
      diagnostics_->Warning({model_.path}, message);
    }
  }

  const LoadedModel& model_;
  const ImportOptions& options_;
  Diagnostics* diagnostics_;
  Diagnostics step_errors_;
  ImportedModel imported_;
  std::set<std::string>* undecided_;
  InputTypes inputs_;
  std::map<std::string, ir::HostTensor> bound_;
  std::map<std::string, int64_t> dims_;  // of the options and of bound values
  std::set<std::string> produced_;
};

}  // namespace

std::vector<SymbolicDim> SymbolicDims(const LoadedModel& model) {
  std::vector<SymbolicDim> dims;
  for (const onnx::ValueInfoProto* input : model.inputs) {
    const auto& shape = input->type().tensor_type().shape();
    for (int i = 0; i < shape.dim_size(); ++i) {
      if (shape.dim(i).has_dim_value()) continue;
      std::string name = DimName(*input, i);
      auto it = std::find_if(dims.begin(), dims.end(),
                             [&](const SymbolicDim& d) { return d.name == name; });
      if (it == dims.end()) it = dims.insert(dims.end(), {name, {}});
      it->uses.push_back(fmt::format("{}[{}]", input->name(), i));
    }
  }
  return dims;
}

void CheckImportNames(const LoadedModel& model, const ImportOptions& options,
                      Diagnostics* diagnostics) {
  ModelImporter(model, options, diagnostics).ResolveNames();
}

Result<ImportedModel> Import(const LoadedModel& model, const ImportOptions& options,
                             Diagnostics* diagnostics, std::set<std::string>* undecided) {
  return Guard([&]() -> Result<ImportedModel> {
    return ModelImporter(model, options, diagnostics, undecided).Run();
  });
}

}  // namespace hyper::onnx_frontend
