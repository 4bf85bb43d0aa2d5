#include "frontend/onnx/parameter_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/strings.h"
#include "frontend/onnx/functions.h"
#include "frontend/onnx/torch_origins.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::NodeProto;

const std::vector<int> kSwap = {1, 0};
// Initializers that an export adds for a transposed or reshaped parameter.
constexpr const char* kFoldedSuffix = ".folded";

class Collector {
 public:
  Collector(const LoadedModel& model, bool restore) : model_(model) {
    if (restore) origins_ = FindTorchOrigins(model);
    for (const auto& input : model.graph().input()) names_.Add(input.name());
    for (const NodeProto& node : model.graph().node()) {
      for (const std::string& output : node.output()) names_.Add(output);
    }
    for (const NamedTensor& t : model.tensors) names_.Add(t.name);
    if (!origins_.has_value() && restore) identities_ = true;
  }

  ParameterPlan Run() {
    if (origins_.has_value()) {
      BindInputs();
      for (const NamedTensor& t : model_.tensors) {
        if (IsFloatTensor(t)) AddRecorded(t);
      }
      RestoreBiases();
      WriteNotes();
    } else {
      for (const NamedTensor& t : model_.tensors) {
        if (IsFloatTensor(t)) Add(FromFile(t, t.name));
      }
    }
    if (identities_) SplitIdentities();
    return std::move(plan_);
  }

 private:
  struct Binding {  // a tensor of the file that holds an input of the PyTorch program
    const NamedTensor* tensor = nullptr;
    bool owner = false;  // its data belong to the input; else operands get a tensor of their own
    std::vector<const TorchUse*> uses;
    TorchForm form = TorchForm::kUnknown;
  };

  static bool IsFloatTensor(const NamedTensor& t) {
    return t.value.defined() && ir::IsFloat(t.value.type().dtype);
  }

  static ParameterDecision FromFile(const NamedTensor& t, std::string name) {
    ParameterDecision d;
    d.name = std::move(name);
    d.source = t.name;
    d.type = t.value.type();
    d.value = t.value;
    d.places.push_back({PlaceOf(t), t.name, {}, {{}, d.type.dims}});
    return d;
  }

  static TensorPlace PlaceOf(const NamedTensor& t) {
    return t.origin == TensorOrigin::kInitializer ? TensorPlace::kInitializer
                                                  : TensorPlace::kConstantNode;
  }

  ParameterDecision* Add(ParameterDecision d) {
    plan_.index.emplace(d.name, static_cast<int>(plan_.tensors.size()));
    plan_.tensors.push_back(std::move(d));
    return &plan_.tensors.back();
  }

  ParameterDecision* Find(const std::string& name) {
    const auto it = plan_.index.find(name);
    return it == plan_.index.end() ? nullptr : &plan_.tensors[static_cast<size_t>(it->second)];
  }

  const TorchInput& Input(int i) const { return origins_->record.inputs[static_cast<size_t>(i)]; }

  // Which inputs each tensor holds, and to which of them its data belong.
  void BindInputs() {
    std::set<int> alive;
    for (const RemovedBias& bias : origins_->removed_biases) alive.insert(bias.input);
    std::map<std::string, std::vector<std::pair<int, std::vector<const TorchUse*>>>> holders;
    for (const TorchUse& use : origins_->uses) {
      auto& list = holders[use.tensor];
      auto it = std::find_if(list.begin(), list.end(), [&](const auto& entry) {
        return entry.first == use.input && use.input >= 0;
      });
      if (it == list.end()) it = list.insert(list.end(), {use.input, {}});
      it->second.push_back(&use);
    }
    for (const NamedTensor& t : model_.tensors) {
      if (!IsFloatTensor(t)) continue;
      const auto& origin = origins_->tensors.at(t.name);
      const auto& list = holders[t.name];
      int owner = -1;
      if (origin.kind == OriginKind::kInput || origin.kind == OriginKind::kLayout) {
        const int own = origin.inputs.front();
        const bool held = std::any_of(list.begin(), list.end(),
                                      [&](const auto& entry) { return entry.first == own; });
        const bool other = std::any_of(list.begin(), list.end(),
                                       [](const auto& entry) { return entry.first >= 0; });
        if (held || !other || (origin.kind == OriginKind::kInput && alive.count(own) > 0)) {
          owner = own;
        }
      }
      for (const auto& [input, uses] : list) {
        if (owner < 0 && input >= 0) owner = input;
      }
      if (owner >= 0) {
        Binding binding{&t, true, {}, TorchForm::kUnknown};
        for (const auto& [input, uses] : list) {
          if (input == owner) binding.uses = uses;
        }
        Bind(owner, std::move(binding));
      }
      for (const auto& [input, uses] : list) {
        if (input >= 0 && input != owner) Bind(input, {&t, false, uses, TorchForm::kUnknown});
        if (input < 0) copies_[t.name].push_back(uses);
      }
    }
  }

  void Bind(int input, Binding binding) {
    for (const TorchUse* use : binding.uses) {
      if (binding.form == TorchForm::kUnknown) binding.form = use->form;
    }
    // A layout call leaves its name at what it made.
    const auto& origin = origins_->tensors.at(binding.tensor->name);
    if (binding.form == TorchForm::kUnknown && origin.kind == OriginKind::kLayout &&
        binding.tensor->value.type().rank() == 2) {
      const std::string& name = binding.tensor->name;
      for (std::string_view call : {"t", "transpose", "permute", "numpy_T"}) {
        if (name == call || name.starts_with(std::string(call) + "_")) {
          binding.form = TorchForm::kTransposed;
        }
      }
    }
    const std::string& tensor = binding.tensor->name;
    bindings_[input].push_back(std::move(binding));
    auto& list = inputs_of_[tensor];
    if (std::find(list.begin(), list.end(), input) == list.end()) list.push_back(input);
  }

  // The tensors of a file with a record: one decision per input of the program, at the place of
  // the first tensor that holds it.
  void AddRecorded(const NamedTensor& t) {
    const auto it = inputs_of_.find(t.name);
    if (it != inputs_of_.end()) {
      for (int input : it->second) AddInput(input);
    }
    const bool owned = it != inputs_of_.end();
    if (!owned) {
      ParameterDecision* d = Add(FromFile(t, t.name));
      const auto& origin = origins_->tensors.at(t.name);
      std::vector<std::string> parameters;
      for (int input : origin.inputs) {
        if (Input(input).kind == TorchKind::kParameter) parameters.push_back(Input(input).name);
      }
      if (!parameters.empty()) {
        d->origin = "computed by the exporter from " + ShortList(parameters, 3);
        computed_.push_back(fmt::format("{} from {}", t.name, ShortList(parameters, 3)));
      } else if (origin.kind == OriginKind::kComputed) {
        d->origin = "computed by the exporter from buffers";
        d->buffer = true;
      } else if (origin.kind == OriginKind::kLiteral ||
                 (origin.kind == OriginKind::kUnknown && !origins_->record.folded_from.empty())) {
        d->origin = "a number of the formula";
        d->literal = true;
      }
    }
    for (const auto& uses : copies_[t.name]) {
      const TorchUse& first = *uses.front();
      ParameterDecision d =
          FromFile(t, names_.MakeUnique(fmt::format("{}@{}", t.name, NodeTitle(*first.node))));
      d.origin = first.input == TorchUse::kLiteral ? "a number of the formula"
                                                   : "computed by the exporter";
      d.literal = first.input == TorchUse::kLiteral;
      d.places = {{TensorPlace::kOperand, d.name, {}, {{}, d.type.dims}}};
      for (const TorchUse* use : uses) Redirect(*use, d.name, &d.places.front());
      Add(std::move(d));
    }
  }

  void Redirect(const TorchUse& use, const std::string& name, TensorPlacement* place) {
    if (use.node->output_size() == 0 || use.node->output(0).empty()) return;
    plan_.operands[{use.node->output(0), use.slot}] = name;
    place->operands.push_back({use.node->output(0), use.slot});
  }

  // The tensor that has the original layout, or whose layout can be told best.
  const Binding& BaseOf(const std::vector<Binding>& bindings, const std::string& name) const {
    const Binding* best = &bindings.front();
    for (const Binding& b : bindings) {
      const auto rank = [&](const Binding& x) {
        if (x.tensor->name == name) return 3;
        const bool whole = origins_->tensors.at(x.tensor->name).kind == OriginKind::kInput;
        if (whole && x.form != TorchForm::kTransposed) return 2;
        return x.form == TorchForm::kUnknown ? 0 : 1;
      };
      if (rank(b) > rank(*best)) best = &b;
    }
    return *best;
  }

  // The original value as the base's layout tells it.
  ir::HostTensor Original(const Binding& base, const std::string& name) const {
    const ir::HostTensor& value = base.tensor->value;
    if (base.tensor->name == name) return value;
    const ir::Dims& dims = value.type().dims;
    if (base.form == TorchForm::kTransposed && dims.size() == 2) return PermuteTensor(value, kSwap);
    const auto wide = std::count_if(dims.begin(), dims.end(), [](int64_t d) { return d != 1; });
    if (base.form == TorchForm::kVector && dims.size() > 1 && wide <= 1) {
      return ReshapeTensor(value, {value.type().elements()});
    }
    return value;
  }

  void AddInput(int input) {
    if (decided_.count(input) > 0) return;
    const std::vector<Binding>& bindings = bindings_.at(input);
    const TorchInput& in = Input(input);
    const Binding& base = BaseOf(bindings, in.name);
    ParameterDecision d;
    d.value = Original(base, in.name);
    d.type = d.value.type();
    d.source = base.tensor->name;
    // The file's tensor of that name may hold another input by now.
    const bool own = std::any_of(bindings.begin(), bindings.end(), [&](const Binding& b) {
      return b.owner && b.tensor->name == in.name;
    });
    d.name = own ? in.name : names_.MakeUnique(in.name);
    d.origin = in.kind == TorchKind::kParameter ? "a parameter of the PyTorch model"
               : in.kind == TorchKind::kBuffer  ? "a buffer of the PyTorch model"
                                                : "a number of the formula";
    d.buffer = in.kind == TorchKind::kBuffer;
    d.literal = in.kind == TorchKind::kConstant;
    decided_[input] = d.name;
    for (const Binding& b : bindings) AddPlace(b, &d);
    if (in.kind != TorchKind::kConstant &&
        std::none_of(bindings.begin(), bindings.end(), [](const Binding& b) { return b.owner; })) {
      separated_.push_back(d.name);
    }
    if (d.places.size() == 1 && bindings.front().owner && d.source != d.name &&
        d.source != d.name + kFoldedSuffix) {
      d.alias = d.source;
    }
    Add(std::move(d));
  }

  void AddPlace(const Binding& b, ParameterDecision* d) {
    const std::optional<TensorView> view = FindView(
        d->value, b.tensor->value,
        b.form == TorchForm::kTransposed && d->type.rank() == 2 ? kSwap : std::vector<int>{});
    if (!view.has_value()) {
      // Not the same numbers: the file's tensor stays what it is.
      if (b.owner) extra_.push_back(b.tensor->name);
      return;
    }
    const bool same = view->permutation.empty() && view->dims == d->type.dims;
    TensorPlacement place{PlaceOf(*b.tensor), b.tensor->name, {}, *view};
    if (b.owner) {
      if (!same || b.tensor->name != d->name) plan_.views[b.tensor->name] = {d->name, *view};
    } else {
      place.place = TensorPlace::kOperand;
      place.tensor = same ? d->name : names_.MakeUnique(d->name + kFoldedSuffix);
      if (!same) plan_.views[place.tensor] = {d->name, *view};
      for (const TorchUse* use : b.uses) Redirect(*use, place.tensor, &place);
    }
    d->places.push_back(std::move(place));
  }

  // A zero bias that the exporter dropped is a parameter with the value zero.
  void RestoreBiases() {
    for (const std::string& tensor : extra_) Add(FromFile(*model_.FindTensor(tensor), tensor));
    for (const RemovedBias& bias : origins_->removed_biases) {
      const auto found = decided_.find(bias.input);
      ParameterDecision* d = found == decided_.end() ? nullptr : Find(found->second);
      if (d == nullptr) {
        const std::optional<ir::TensorType> type = BiasType(*bias.node);
        if (!type.has_value()) {
          origins_->lost.push_back(Input(bias.input).name);
          continue;
        }
        ParameterDecision fresh;
        fresh.name = names_.MakeUnique(Input(bias.input).name);
        fresh.type = *type;
        fresh.value = ir::HostTensor::Zeros(*type);
        fresh.origin = "a zero bias that the exporter left out";
        fresh.places.push_back({TensorPlace::kOperand, fresh.name, {}, {{}, type->dims}});
        fresh.buffer = Input(bias.input).kind == TorchKind::kBuffer;
        decided_[bias.input] = fresh.name;
        restored_.push_back(fresh.name);
        d = Add(std::move(fresh));
      }
      for (TensorPlacement& place : d->places) {
        if (!place.view.permutation.empty() || place.view.dims != d->type.dims) continue;
        place.operands.push_back({bias.node->output(0), bias.slot});
        plan_.operands[{bias.node->output(0), bias.slot}] = d->name;
        break;
      }
    }
  }

  // [output channels], from the weight operand.
  std::optional<ir::TensorType> BiasType(const NodeProto& node) const {
    const NamedTensor* weight = model_.FindTensor(node.input(1));
    if (weight == nullptr || !IsFloatTensor(*weight)) return std::nullopt;
    const ir::Dims& dims = weight->value.type().dims;
    const auto attribute = [&](std::string_view name, int64_t fallback) {
      for (const auto& a : node.attribute()) {
        if (a.name() == name) return a.i();
      }
      return fallback;
    };
    if (dims.size() < 2) return std::nullopt;
    int64_t channels = dims[0];
    if (node.op_type() == "ConvTranspose") channels = dims[1] * attribute("group", 1);
    if (node.op_type() == "Gemm" && attribute("transB", 0) == 0) channels = dims[1];
    return ir::TensorType{weight->value.type().dtype, {channels}};
  }

  void SplitIdentities() {
    std::set<std::string> outputs;
    for (const auto& output : model_.graph().output()) outputs.insert(output.name());
    for (const NodeProto& node : model_.graph().node()) {
      if (node.op_type() != "Identity" || !NormalDomain(node.domain()).empty()) continue;
      if (node.input_size() != 1 || node.output_size() != 1) continue;
      const ParameterDecision* source = Find(node.input(0));
      if (source == nullptr || outputs.count(node.output(0)) > 0) continue;
      ParameterDecision d = *source;
      d.name = node.output(0);
      d.places = {{TensorPlace::kIdentity, d.name, {}, {{}, d.type.dims}}};
      Add(std::move(d));
    }
  }

  void WriteNotes() {
    auto note = [&](std::string_view text, const std::vector<std::string>& names) {
      if (!names.empty()) plan_.notes.push_back(fmt::format("{}: {}", text, ShortList(names)));
    };
    note("tensors that the exporter stored once because their values are equal are separate again",
         separated_);
    note("zero biases that the exporter left out are parameters again", restored_);
    note("the exporter folded parameters into other tensors, which are trained in their place",
         computed_);
    note(
        "the exporter folded a BatchNormalization into these, which are trained in its place (with "
        "optimize=False it keeps it)",
        origins_->fused);
    note(
        "parameters of the PyTorch model that the exporter left out of the file, so that they are "
        "not trained",
        origins_->lost);
    note(
        "perhaps several parameters of equal value that the exporter merged before it recorded "
        "which; each is trained as one",
        origins_->unsure);
  }

  const LoadedModel& model_;
  std::optional<TorchOrigins> origins_;
  bool identities_ = false;
  NameSet names_;
  ParameterPlan plan_;
  std::map<int, std::vector<Binding>> bindings_;
  std::map<std::string, std::vector<int>> inputs_of_;  // tensor -> inputs that it holds
  std::map<std::string, std::vector<std::vector<const TorchUse*>>> copies_;
  std::map<int, std::string> decided_;  // input -> name of its decision
  std::vector<std::string> extra_;
  std::vector<std::string> separated_;
  std::vector<std::string> restored_;
  std::vector<std::string> computed_;
};

}  // namespace

std::string ShortList(const std::vector<std::string>& names, size_t most) {
  std::vector<std::string> shown(names.begin(),
                                 names.begin() + static_cast<long>(std::min(most, names.size())));
  std::string text = Join(shown, ", ");
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

ParameterPlan CollectParameterTensors(const LoadedModel& model, bool restore) {
  return Collector(model, restore).Run();
}

}  // namespace hyper::onnx_frontend
