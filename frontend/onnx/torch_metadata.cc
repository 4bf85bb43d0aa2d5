#include "frontend/onnx/torch_metadata.h"

#include <algorithm>
#include <cctype>

namespace hyper::onnx_frontend {
namespace {

constexpr const char* kSignatureKey = "pkg.torch.export.ExportedProgram.graph_signature";
constexpr const char* kCallKey = "pkg.torch.onnx.fx_node";
constexpr const char* kScopesKey = "pkg.torch.onnx.name_scopes";
constexpr const char* kRuleKey = "pkg.onnxscript.rewriter.rule_name";
constexpr size_t kMaxText = size_t{64} << 20;  // of a signature; larger ones are not ours

template <typename Proto>
const std::string& Metadata(const Proto& proto, std::string_view key) {
  static const std::string none;
  for (const auto& entry : proto.metadata_props()) {
    if (entry.key() == key) return entry.value();
  }
  return none;
}

bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The strings of a printed Python list: "['a', 'b']".
std::vector<std::string> QuotedStrings(std::string_view text) {
  std::vector<std::string> strings;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\'' && text[i] != '"') continue;
    const char quote = text[i];
    std::string s;
    for (++i; i < text.size() && text[i] != quote; ++i) {
      if (text[i] == '\\' && i + 1 < text.size()) ++i;
      s += text[i];
    }
    strings.push_back(std::move(s));
  }
  return strings;
}

std::optional<TorchKind> KindOf(std::string_view text) {
  if (text == "PARAMETER") return TorchKind::kParameter;
  if (text == "BUFFER") return TorchKind::kBuffer;
  if (text == "CONSTANT_TENSOR") return TorchKind::kConstant;
  return std::nullopt;
}

void AddInput(TorchRecord* record, std::string placeholder, std::string name, TorchKind kind) {
  if (placeholder.empty() || name.empty() || record->by_placeholder.count(placeholder) > 0) return;
  const int index = static_cast<int>(record->inputs.size());
  record->by_placeholder[placeholder] = index;
  record->by_name.emplace(name, index);
  record->inputs.push_back({std::move(placeholder), std::move(name), kind});
}

// "p_a_weight: PARAMETER target='a.weight'", or before PyTorch 2.7
// "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_a_weight'),
// target='a.weight'".
void ReadSignature(const std::string& text, TorchRecord* record) {
  size_t begin = 0;
  while (begin < text.size()) {  // one line per input: names may hold anything but a line break
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = line.find(": ");
    const size_t target = line.find(" target='");
    if (colon == std::string_view::npos || target == std::string_view::npos || target < colon) {
      continue;
    }
    const size_t name = target + 9;
    const size_t last = line.rfind('\'');
    const auto kind = KindOf(line.substr(colon + 2, target - colon - 2));
    if (!kind.has_value() || last == std::string_view::npos || last < name) continue;
    AddInput(record, std::string(line.substr(0, colon)),
             std::string(line.substr(name, last - name)), *kind);
  }
  static const std::string kSpec = "InputSpec(kind=<InputKind.";
  for (size_t at = text.find(kSpec); at != std::string::npos; at = text.find(kSpec, at + 1)) {
    const size_t kind_at = at + kSpec.size();
    const std::string_view spec =
        std::string_view(text).substr(kind_at, text.find("InputSpec(", kind_at) - kind_at);
    const auto kind = KindOf(spec.substr(0, spec.find(':')));
    const size_t name = spec.find("name=");
    const size_t target = spec.find("target=");
    if (!kind.has_value() || name == std::string_view::npos || target == std::string_view::npos) {
      continue;
    }
    const auto names = QuotedStrings(spec.substr(name, target - name));
    const auto targets = QuotedStrings(spec.substr(target));
    if (names.empty() || targets.empty()) continue;
    AddInput(record, names.front(), targets.front(), *kind);
  }
}

// "p_enc_layers_0_norm2_weight" in the scope "enc.layers.0.norm2" -> "enc.layers.0.norm2.weight".
std::string DottedName(const std::string& placeholder, const std::vector<std::string>& scopes) {
  std::string best;
  std::string name = placeholder.substr(2);
  for (const std::string& scope : scopes) {
    std::string prefix = scope;
    std::replace(prefix.begin(), prefix.end(), '.', '_');
    if (prefix.size() <= best.size() || !placeholder.substr(2).starts_with(prefix + "_")) continue;
    best = prefix;
    name = scope + "." + placeholder.substr(2 + prefix.size() + 1);
  }
  return name;
}

// Without a signature: names that start as the exporter's do, in calls and beside tensors.
void GuessInputs(const LoadedModel& model, TorchRecord* record) {
  for (const auto& info : model.original->graph().value_info()) {
    const std::string& kind = Metadata(info, "pkg.torch.export.graph_signature.InputSpec.kind");
    const std::string& placeholder = Metadata(info, "pkg.torch.onnx.original_node_name");
    if (const auto known = KindOf(kind); known.has_value()) {
      AddInput(record, placeholder, info.name(), *known);
    }
  }
  for (const onnx::NodeProto& node : model.graph().node()) {
    const auto call = ParseTorchCall(TorchCallText(node));
    if (!call.has_value()) continue;
    const std::vector<std::string> scopes = QuotedStrings(Metadata(node, kScopesKey));
    for (const std::string& ref : call->refs) {
      if (ref.size() < 3 || ref[1] != '_' || record->by_placeholder.count(ref) > 0) continue;
      const TorchKind kind = ref[0] == 'p'   ? TorchKind::kParameter
                             : ref[0] == 'b' ? TorchKind::kBuffer
                                             : TorchKind::kConstant;
      if (ref[0] != 'p' && ref[0] != 'b' && ref[0] != 'c') continue;
      AddInput(record, ref, DottedName(ref, scopes), kind);
    }
  }
}

}  // namespace

const TorchInput* TorchRecord::FindPlaceholder(const std::string& placeholder) const {
  const auto it = by_placeholder.find(placeholder);
  return it == by_placeholder.end() ? nullptr : &inputs[static_cast<size_t>(it->second)];
}

const TorchInput* TorchRecord::FindName(const std::string& name) const {
  const auto it = by_name.find(name);
  return it == by_name.end() ? nullptr : &inputs[static_cast<size_t>(it->second)];
}

const std::string& TorchCallText(const onnx::NodeProto& node) { return Metadata(node, kCallKey); }
const std::string& TorchRuleName(const onnx::NodeProto& node) { return Metadata(node, kRuleKey); }

std::optional<TorchCall> ParseTorchCall(std::string_view text) {
  const size_t target = text.find("[target=");
  const size_t args = text.find("](args = (");
  if (target == std::string_view::npos || args == std::string_view::npos || args < target) {
    return std::nullopt;
  }
  TorchCall call;
  std::string_view op = text.substr(target + 8, args - target - 8);
  if (op.starts_with("torch.ops.")) {
    op.remove_prefix(10);
    const size_t first = op.find('.');
    if (first != std::string_view::npos) op.remove_prefix(first + 1);
    op = op.substr(0, op.find('.'));
  }
  call.op = std::string(op);
  const size_t begin = args + 10;
  int depth = 0;
  std::string argument;
  size_t i = begin;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (depth < 0) break;
    if (c == ',' && depth == 0) {
      call.arguments.push_back(std::move(argument));
      argument.clear();
      continue;
    }
    if (c == ' ' && argument.empty()) continue;
    argument += c;
  }
  if (!argument.empty()) call.arguments.push_back(std::move(argument));
  for (i = begin; i < text.size(); ++i) {
    if (text[i] != '%') continue;
    size_t end = i + 1;
    while (end < text.size() && IsNameChar(text[end])) ++end;
    std::string ref(text.substr(i + 1, end - i - 1));
    if (!ref.empty() && std::find(call.refs.begin(), call.refs.end(), ref) == call.refs.end()) {
      call.refs.push_back(std::move(ref));
    }
    i = end - 1;
  }
  return call;
}

std::optional<TorchRecord> ReadTorchRecord(const LoadedModel& model) {
  const auto& nodes = model.graph().node();
  const bool recorded = std::any_of(nodes.begin(), nodes.end(), [](const onnx::NodeProto& node) {
    return !TorchCallText(node).empty();
  });
  if (!recorded) return std::nullopt;
  TorchRecord record;
  const onnx::GraphProto& graph = model.original->graph();
  const std::string& signature = Metadata(graph, kSignatureKey);
  if (!signature.empty() && signature.size() < kMaxText) ReadSignature(signature, &record);
  if (record.inputs.empty()) GuessInputs(model, &record);
  for (const auto& info : graph.value_info()) {
    const std::string& text = Metadata(info, kFoldedFromKey);
    if (!text.empty()) record.folded_from[info.name()] = QuotedStrings(text);
  }
  return record;
}

}  // namespace hyper::onnx_frontend
