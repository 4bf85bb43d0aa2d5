#include "ir/ops_table.h"

#include <charconv>

#include "base/strings.h"
#include "ir/op_def.h"

namespace hyper::ir {
namespace {

struct GradientText {
  std::string kind;
  std::string reason;
};

GradientText DescribeGradient(const OpDef& op) {
  if (const auto* zero = std::get_if<ZeroGradient>(&op.gradient)) {
    return {"zero", std::string(zero->reason)};
  }
  if (const auto* refused = std::get_if<NotDifferentiable>(&op.gradient)) {
    return {"none", std::string(refused->reason)};
  }
  return {"yes", ""};
}

std::string Arity(const OpDef& op) {
  if (op.max_inputs == op.min_inputs) return std::to_string(op.min_inputs);
  return std::to_string(op.min_inputs) +
         (op.max_inputs < 0 ? "+" : "-" + std::to_string(op.max_inputs));
}

std::string NumberText(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  return std::string(buffer, end);
}

std::string DefaultText(const Attribute& value) {
  switch (KindOf(value)) {
    case AttributeKind::kInt: return std::to_string(std::get<int64_t>(value));
    case AttributeKind::kFloat: return NumberText(std::get<double>(value));
    case AttributeKind::kBool: return std::get<bool>(value) ? "true" : "false";
    case AttributeKind::kString: return std::get<std::string>(value);
    case AttributeKind::kDims: return FormatDims(std::get<Dims>(value));
    case AttributeKind::kDType: return std::string(DTypeName(std::get<DType>(value)));
    case AttributeKind::kExpr: return std::get<Expr>(value).ToString();
    case AttributeKind::kTensor: return std::get<HostTensor>(value).type().ToString();
  }
  return "";
}

std::string JoinViews(const std::vector<std::string_view>& parts, std::string_view separator) {
  return Join(std::vector<std::string>(parts.begin(), parts.end()), separator);
}

// Bars would end a table cell.
std::string Cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) {
    text.replace(at, 1, "\\|");
  }
  return text;
}

std::string AttributesMarkdown(const OpDef& op) {
  std::string text;
  for (const AttributeDef& a : op.attributes) {
    text += "- `" + std::string(a.name) + "` (" + std::string(AttributeKindName(a.kind)) +
            (a.default_value ? ", default `" + DefaultText(*a.default_value) + "`" : "") +
            "): " + std::string(a.doc) + "\n";
  }
  return text;
}

std::string SavedText(const OpDef& op) {
  std::vector<std::string> parts;
  for (int i : op.saved->inputs) parts.push_back("input " + std::to_string(i));
  for (int i : op.saved->outputs) parts.push_back("output " + std::to_string(i));
  return parts.empty() ? "nothing" : Join(parts, ", ");
}

std::string InPlaceText(const OpDef& op) {
  std::vector<std::string> parts;
  for (const InPlaceRule& r : *op.in_place) {
    parts.push_back("output " + std::to_string(r.output) + " in input " + std::to_string(r.input));
  }
  return parts.empty() ? "no" : Join(parts, ", ");
}

std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string JsonBool(bool value) { return value ? "true" : "false"; }

std::string IntList(const std::vector<int>& values) {
  std::vector<std::string> parts;
  for (int v : values) parts.push_back(std::to_string(v));
  return "[" + Join(parts, ", ") + "]";
}

std::string AttributeJson(const AttributeDef& a) {
  return "{\"name\": " + Quote(a.name) + ", \"kind\": " + Quote(AttributeKindName(a.kind)) +
         ", \"doc\": " + Quote(a.doc) +
         ", \"default\": " + (a.default_value ? Quote(DefaultText(*a.default_value)) : "null") +
         "}";
}

std::string OpJson(const OpDef& op) {
  std::vector<std::string> attributes;
  for (const AttributeDef& a : op.attributes) attributes.push_back(AttributeJson(a));
  std::vector<std::string> in_place;
  for (const InPlaceRule& r : *op.in_place) in_place.push_back(IntList({r.output, r.input}));
  std::vector<std::string> kernels;
  for (std::string_view k : op.cpu_kernels) kernels.push_back(Quote(k));
  const GradientText gradient = DescribeGradient(op);
  return "    {\"name\": " + Quote(op.name) + ", \"family\": " + Quote(op.family) +
         ", \"summary\": " + Quote(op.summary) +
         ",\n     \"inputs\": " + IntList({op.min_inputs, op.max_inputs}) +
         ", \"outputs\": " + std::to_string(op.outputs) + ",\n     \"attributes\": [" +
         Join(attributes, ", ") + "],\n     \"gradient\": " + Quote(gradient.kind) +
         ", \"gradient_reason\": " + Quote(gradient.reason) +
         ",\n     \"accumulates\": " + JsonBool(op.accumulates) +
         ", \"side_effects\": " + JsonBool(op.has_side_effects) + ", \"in_place\": [" +
         Join(in_place, ", ") + "], \"saved\": {\"inputs\": " + IntList(op.saved->inputs) +
         ", \"outputs\": " + IntList(op.saved->outputs) + "},\n     \"kernels\": {\"cpu\": [" +
         Join(kernels, ", ") + "]}}";
}

}  // namespace

std::string OpsMarkdown() {
  std::string text =
      "# Core ops\n\nWritten from the op records (`hyperc ops`); shapes and semantics are in "
      "`ir/core_ops.md`.\nKernels are those that lowering chooses from when it compiles: a library "
      "call (`onednn.*`) where dtype, shapes and layout suit the library, else code made for the "
      "job (`generated`). `reference`, the plain loops, runs with `--kernels reference` "
      "only.\nGradient: `yes`, `zero` (the derivative is zero) or `none` (asking for it is an "
      "error).\n\n"
      "| op | family | inputs | outputs | gradient | accumulates | cpu kernels |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const OpDef* op : CoreOps().ops()) {
    text += "| `" + std::string(op->name) + "` | " + std::string(op->family) + " | " + Arity(*op) +
            " | " + std::to_string(op->outputs) + " | " + DescribeGradient(*op).kind + " | " +
            (op->accumulates ? "yes" : "no") + " | " + Cell(JoinViews(op->cpu_kernels, ", ")) +
            " |\n";
  }
  std::string_view family;
  for (const OpDef* op : CoreOps().ops()) {
    if (op->family != family) text += "\n## " + std::string(op->family) + "\n";
    family = op->family;
    text += "\n### " + std::string(op->name) + "\n\n" + std::string(op->summary) + ".\n\n" +
            AttributesMarkdown(*op);
    const GradientText gradient = DescribeGradient(*op);
    text += "- gradient: " + gradient.kind +
            (gradient.reason.empty() ? "" : " (" + gradient.reason + ")") + "\n";
    text += "- backward reads: " + SavedText(*op) + "\n";
    text += "- in place: " + InPlaceText(*op) + "\n";
  }
  return text;
}

std::string OpsText() {
  const auto row = [](std::string_view op, std::string_view family, std::string_view inputs,
                      std::string_view outputs, std::string_view gradient,
                      std::string_view kernels) {
    const auto cell = [](std::string_view text, size_t width) {
      return std::string(text) + std::string(text.size() < width ? width - text.size() : 1, ' ');
    };
    return cell(op, 22) + cell(family, 15) + cell(inputs, 7) + cell(outputs, 8) +
           cell(gradient, 9) + std::string(kernels) + "\n";
  };
  std::string text = row("core op", "family", "inputs", "outputs", "gradient", "cpu kernels");
  for (const OpDef* op : CoreOps().ops()) {
    text += row(op->name, op->family, Arity(*op), std::to_string(op->outputs),
                DescribeGradient(*op).kind, JoinViews(op->cpu_kernels, ", "));
  }
  return text + "\n" + std::to_string(CoreOps().ops().size()) +
         " core ops, which ONNX operators are lowered to; those are listed by: hyperc ops --onnx\n";
}

std::string OpsJson() {
  std::vector<std::string> ops;
  for (const OpDef* op : CoreOps().ops()) ops.push_back(OpJson(*op));
  return "{\n  \"ops\": [\n" + Join(ops, ",\n") + "\n  ]\n}\n";
}

}  // namespace hyper::ir
