#include "frontend/onnx/torch_origins.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "frontend/onnx/functions.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::NodeProto;

// "transpose_12" -> "transpose"
std::string WithoutNumber(const std::string& name) {
  const size_t underscore = name.rfind('_');
  if (underscore == std::string::npos || underscore + 1 == name.size()) return name;
  const bool digits = std::all_of(name.begin() + static_cast<long>(underscore) + 1, name.end(),
                                  [](unsigned char c) { return std::isdigit(c); });
  return digits ? name.substr(0, underscore) : name;
}

bool IsLayoutName(const std::string& value) {
  static const std::set<std::string> names = {
      "t",       "transpose", "permute",   "view",  "reshape", "unsqueeze", "squeeze",
      "numpy_T", "flatten",   "unflatten", "clone", "alias",   "detach",    "contiguous"};
  return names.count(WithoutNumber(value)) > 0;
}

// Calls whose parameters the exporter itself transposes or reshapes, and does nothing else to.
bool FoldsLayoutOnly(const std::string& op) {
  static const std::set<std::string> ops = {"linear", "group_norm", "native_group_norm", "prelu",
                                            "_prelu_kernel"};
  return ops.count(op) > 0;
}

bool HasWeightAndBias(const std::string& op) {
  return op == "linear" || op.starts_with("conv");  // (input, weight, bias, ...)
}

// True when a rewrite rule made the node out of several, so that its call does not tell what all of
// its operands are.
bool IsRewritten(const TorchCall& call, const NodeProto& node) {
  const std::string& rules = TorchRuleName(node);
  for (size_t begin = 0; begin < rules.size();) {
    const size_t end = std::min(rules.find(", ", begin), rules.size());
    const std::string rule = rules.substr(begin, end - begin);
    begin = end + 2;
    const bool same_operands =
        rule == "MaterializeReshapeShape" || rule.starts_with("RemoveOptionalBiasFrom") ||
        (call.op == "linear" &&
         (rule.find("Gemm") != std::string::npos || rule.find("MatMul") != std::string::npos));
    if (!same_operands) return true;
  }
  return false;
}

template <typename T>
bool Contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

class OriginFinder {
 public:
  OriginFinder(const LoadedModel& model, TorchRecord record) : model_(model) {
    origins_.record = std::move(record);
  }

  TorchOrigins Run() {
    CollectCalls();
    for (const NamedTensor& t : model_.tensors) {
      if (!t.value.defined() || !ir::IsFloat(t.value.type().dtype)) continue;
      origins_.tensors[t.name] = OriginOf(t.name);
      for (int input : origins_.tensors[t.name].inputs) stored_.insert(input);
    }
    for (const std::string& text : order_) Attribute(groups_.at(text));
    for (const std::string& tensor : numbers_) {
      if (named_as_input_.count(tensor) == 0) {
        origins_.tensors[tensor].kind = OriginKind::kLiteral;
      }
    }
    FindLost();
    return std::move(origins_);
  }

 private:
  struct Group {  // the ONNX nodes of one call
    TorchCall call;
    std::vector<int> inputs;  // of the record, that the call names
    std::vector<const NodeProto*> nodes;
  };

  TorchOrigin OriginOf(const std::string& tensor) const {
    const auto& names = origins_.record.by_name;
    if (const auto it = names.find(tensor); it != names.end()) {
      return {OriginKind::kInput, {it->second}};
    }
    const auto folded = origins_.record.folded_from.find(tensor);
    if (folded == origins_.record.folded_from.end()) return {};
    TorchOrigin origin{OriginKind::kLiteral, {}};
    bool layout = true;
    for (const std::string& from : folded->second) {
      if (const auto it = names.find(from); it != names.end()) {
        origin.inputs.push_back(it->second);
      } else if (!IsLayoutName(from) && WithoutNumber(from) != "val") {
        layout = false;
      }
    }
    if (origin.inputs.empty()) return origin;
    layout =
        layout && origin.inputs.size() == 1 && (IsLayoutName(tensor) || LayoutOperands(tensor));
    origin.kind = layout ? OriginKind::kLayout : OriginKind::kComputed;
    return origin;
  }

  // True when the calls that read `tensor` do no more than lay parameters out anew.
  bool LayoutOperands(const std::string& tensor) const {
    const auto it = readers_.find(tensor);
    return it != readers_.end() &&
           std::all_of(it->second.begin(), it->second.end(), FoldsLayoutOnly);
  }

  void CollectCalls() {
    for (const auto& input : model_.graph().input()) values_.insert(input.name());
    for (const NodeProto& node : model_.graph().node()) {
      for (const std::string& output : node.output()) values_.insert(output);
      const std::string& text = TorchCallText(node);
      if (text.empty()) continue;
      auto it = groups_.find(text);
      if (it == groups_.end()) {
        auto call = ParseTorchCall(text);
        if (!call.has_value()) continue;
        Group group;
        for (const std::string& ref : call->refs) {
          const auto found = origins_.record.by_placeholder.find(ref);
          if (found == origins_.record.by_placeholder.end()) continue;
          group.inputs.push_back(found->second);
          named_.insert(found->second);
        }
        group.call = std::move(*call);
        it = groups_.emplace(text, std::move(group)).first;
        order_.push_back(text);
      }
      it->second.nodes.push_back(&node);
      for (const std::string& name : node.input()) readers_[name].push_back(it->second.call.op);
    }
  }

  std::vector<TorchUse> OperandsOf(const Group& group) const {
    std::vector<TorchUse> operands;
    for (const NodeProto* node : group.nodes) {
      // A group norm is spelled out with an InstanceNormalization whose scale and bias are numbers.
      const bool helper = node->op_type() == "InstanceNormalization" &&
                          group.call.op.find("group_norm") != std::string::npos;
      for (int slot = 0; slot < node->input_size(); ++slot) {
        const auto it = origins_.tensors.find(node->input(slot));
        if (it == origins_.tensors.end()) continue;
        const bool numbers = helper && slot > 0;
        if (it->second.kind == OriginKind::kLiteral) continue;
        TorchUse use{node, slot, node->input(slot), 0, FormOf(group.call.op, *node, slot)};
        if (numbers) {
          if (it->second.kind == OriginKind::kUnknown) continue;
          use.input = TorchUse::kLiteral;
        }
        operands.push_back(std::move(use));
      }
    }
    return operands;
  }

  static TorchForm FormOf(const std::string& op, const NodeProto& node, int slot) {
    if (op == "linear" && slot == 1) {
      if (node.op_type() == "MatMul") return TorchForm::kTransposed;
      if (node.op_type() == "Gemm") {
        const bool transposes =
            std::any_of(node.attribute().begin(), node.attribute().end(),
                        [](const auto& a) { return a.name() == "transB" && a.i() != 0; });
        return transposes ? TorchForm::kSame : TorchForm::kTransposed;
      }
    }
    if (op.find("norm") != std::string::npos || op.find("prelu") != std::string::npos) {
      return op.find("group_norm") != std::string::npos || op.find("prelu") != std::string::npos
                 ? TorchForm::kVector
                 : TorchForm::kSame;
    }
    return TorchForm::kUnknown;
  }

  // The one input that a tensor holds, or -1.
  int OwnInput(const std::string& tensor) const {
    const TorchOrigin& origin = origins_.tensors.at(tensor);
    const bool one = origin.kind == OriginKind::kInput || origin.kind == OriginKind::kLayout;
    return one ? origin.inputs.front() : -1;
  }

  // Exporters before PyTorch 2.9 do not say what they folded.
  bool NothingKnown(const Group& group, const std::string& tensor) const {
    return origins_.tensors.at(tensor).kind == OriginKind::kUnknown &&
           !(origins_.record.folded_from.empty() && FoldsLayoutOnly(group.call.op) &&
             model_.FindTensor(tensor)->value.type().elements() > 1);
  }

  void Attribute(const Group& group) {
    std::vector<TorchUse> operands;
    for (TorchUse& use : OperandsOf(group)) {
      if (use.input == TorchUse::kLiteral) {
        origins_.uses.push_back(use);
      } else if (IsRewritten(group.call, *use.node)) {
        ByTensor(group, use);
      } else {
        operands.push_back(std::move(use));
      }
    }
    if (!InOrder(group, &operands)) ByName(group, &operands);
    for (TorchUse& use : operands) {
      if (use.input >= 0) {
        held_.insert(use.input);
        named_as_input_.insert(use.tensor);
      }
      if (use.input != kNone) origins_.uses.push_back(std::move(use));
    }
    FindRemovedBias(group);
  }

  // An operand of a node that stands for several: only the tensor itself tells what it holds.
  void ByTensor(const Group& group, TorchUse use) {
    use.input = OwnInput(use.tensor);
    if (use.input < 0) return;
    if (TorchRuleName(*use.node).find("BatchNorm") != std::string::npos) {
      origins_.fused.push_back(use.tensor);
    } else if (!Contains(group.inputs, use.input)) {
      const bool missing = std::any_of(group.inputs.begin(), group.inputs.end(),
                                       [&](int input) { return stored_.count(input) == 0; });
      if (missing) origins_.unsure.push_back(use.tensor);
    }
    held_.insert(use.input);
    named_as_input_.insert(use.tensor);
    origins_.uses.push_back(std::move(use));
  }

  // One operand per input of the call, in the same order: what weights, biases and statistics of
  // equal value need to be told apart.
  bool InOrder(const Group& group, std::vector<TorchUse>* operands) const {
    if (operands->empty() || operands->size() != group.inputs.size()) return false;
    for (size_t i = 0; i < operands->size(); ++i) {
      const int input = group.inputs[i];
      if (NothingKnown(group, (*operands)[i].tensor)) return false;
      if (OwnInput((*operands)[i].tensor) != input && stored_.count(input) > 0) return false;
    }
    for (size_t i = 0; i < operands->size(); ++i) (*operands)[i].input = group.inputs[i];
    return true;
  }

  void ByName(const Group& group, std::vector<TorchUse>* operands) {
    std::set<int> taken;
    std::vector<TorchUse*> foreign;
    for (TorchUse& use : *operands) {
      use.input = OwnInput(use.tensor);
      const TorchOrigin& origin = origins_.tensors.at(use.tensor);
      const bool own = use.input >= 0
                           ? Contains(group.inputs, use.input)
                           : std::any_of(origin.inputs.begin(), origin.inputs.end(),
                                         [&](int i) { return Contains(group.inputs, i); });
      if (own) {
        taken.insert(use.input);
        if (use.input < 0) use.input = kNone;  // computed from them: a tensor of its own
      } else {
        foreign.push_back(&use);
      }
    }
    std::vector<int> missing;
    for (int input : group.inputs) {
      if (taken.count(input) == 0 && stored_.count(input) == 0) missing.push_back(input);
    }
    if (missing.empty()) {
      for (TorchUse* use : foreign) NoInputLeft(group, use);
      return;
    }
    std::vector<std::string> tensors;
    for (const TorchUse* use : foreign) {
      if (!Contains(tensors, use->tensor)) tensors.push_back(use->tensor);
    }
    const bool each = foreign.size() == missing.size();
    const bool by_tensor = !each && tensors.size() == missing.size();
    std::set<int> used;
    for (size_t i = 0; i < foreign.size(); ++i) {
      TorchUse* use = foreign[i];
      const TorchOrigin& origin = origins_.tensors.at(use->tensor);
      if (NothingKnown(group, use->tensor)) {
        use->input = kNone;
      } else if (origin.kind == OriginKind::kComputed) {
        use->input = TorchUse::kOwnCopy;
      } else if (each) {
        use->input = missing[i];
      } else if (by_tensor) {
        const auto at = std::find(tensors.begin(), tensors.end(), use->tensor);
        use->input = missing[static_cast<size_t>(at - tensors.begin())];
      } else {
        use->input = Fitting(group, *use, missing, &used);
      }
    }
  }

  // The missing input that stands where the operand does: weight or bias.
  int Fitting(const Group& group, const TorchUse& use, const std::vector<int>& missing,
              std::set<int>* used) const {
    for (int input : missing) {
      if (used->count(input) > 0) continue;
      const std::string ref = "%" + origins_.record.inputs[static_cast<size_t>(input)].placeholder;
      const auto& arguments = group.call.arguments;
      const bool bias = HasWeightAndBias(group.call.op)
                            ? arguments.size() > 2 && arguments[2] == ref
                            : ref.ends_with("_bias");
      const bool is_bias = use.slot == 2 || use.node->op_type() == "Add";
      if (bias != is_bias) continue;
      used->insert(input);
      return input;
    }
    return TorchUse::kOwnCopy;
  }

  // The call names no input for the operand: a literal of equal value, or an input behind a call
  // that left no node (detach, clone).
  void NoInputLeft(const Group& group, TorchUse* use) {
    const TorchOrigin& origin = origins_.tensors.at(use->tensor);
    bool all_known = true;
    for (const std::string& ref : group.call.refs) {
      all_known =
          all_known && (values_.count(ref) > 0 || origins_.record.by_placeholder.count(ref) > 0);
    }
    if (origin.kind == OriginKind::kUnknown || origin.kind == OriginKind::kComputed) {
      use->input = kNone;
      if (origin.kind == OriginKind::kUnknown && all_known) numbers_.insert(use->tensor);
      return;
    }
    if (Contains(group.call.refs, use->tensor)) return;
    if (origin.kind == OriginKind::kInput && all_known) {
      use->input = TorchUse::kLiteral;
    } else if (origin.kind == OriginKind::kLayout && WithoutNumber(use->tensor) != "val") {
      origins_.unsure.push_back(use->tensor);
    }
  }

  void FindRemovedBias(const Group& group) {
    if (!HasWeightAndBias(group.call.op) || group.call.arguments.size() < 3) return;
    const std::string& argument = group.call.arguments[2];
    if (argument.size() < 2 || argument[0] != '%') return;
    const auto it = origins_.record.by_placeholder.find(argument.substr(1));
    if (it == origins_.record.by_placeholder.end()) return;
    for (const NodeProto* node : group.nodes) {
      if (!TorchRuleName(*node).starts_with("RemoveOptionalBiasFrom")) continue;
      if (IsRewritten(group.call, *node)) continue;
      if (node->input_size() != 2 || node->output_size() == 0 || node->output(0).empty()) continue;
      origins_.removed_biases.push_back({node, 2, it->second});
      held_.insert(it->second);
    }
  }

  void FindLost() {
    bool missing = false;
    for (size_t i = 0; i < origins_.record.inputs.size(); ++i) {
      const int input = static_cast<int>(i);
      const TorchInput& in = origins_.record.inputs[i];
      if (in.kind != TorchKind::kParameter || held_.count(input) > 0 || stored_.count(input) > 0) {
        continue;
      }
      missing = true;
      if (named_.count(input) > 0) origins_.lost.push_back(in.name);
    }
    if (!missing) origins_.unsure.clear();
  }

  static constexpr int kNone = -3;  // the record says nothing about the operand

  const LoadedModel& model_;
  TorchOrigins origins_;
  std::set<int> stored_;           // inputs that tensors of the file hold or were computed from
  std::set<int> held_;             // inputs that operands were found for
  std::set<int> named_;            // inputs that calls name
  std::set<std::string> values_;   // names of the graph's inputs and outputs of nodes
  std::set<std::string> numbers_;  // tensors in the place of a literal
  std::set<std::string> named_as_input_;  // tensors that hold an input for some operand
  std::map<std::string, Group> groups_;
  std::map<std::string, std::vector<std::string>> readers_;  // tensor -> ops of calls
  std::vector<std::string> order_;
};

}  // namespace

std::optional<TorchOrigins> FindTorchOrigins(const LoadedModel& model) {
  std::optional<TorchRecord> record = ReadTorchRecord(model);
  if (!record.has_value()) return std::nullopt;
  return OriginFinder(model, std::move(*record)).Run();
}

}  // namespace hyper::onnx_frontend
