#include <charconv>
#include <map>

#include "ir/op_def.h"
#include "ir/text.h"
#include "ir/text_lexer.h"
#include "ir/text_values.h"

namespace hyper::ir {
namespace {

std::string Symbol(std::string_view name) {
  return "@" + (IsIdentifier(name) ? std::string(name) : QuoteText(name));
}

// Gives every value its %name in order of definition, so that parsing and printing again gives the
// same: the source tensor's name where it can stand unquoted (a later value of the same name gets
// #1, #2, ...), otherwise a number.
class Names {
 public:
  explicit Names(const Function& function) : function_(function) {
    names_.resize(static_cast<size_t>(function.value_count()));
  }
  std::string Define(ValueId id) {
    const std::string& source = function_.value(id).name;
    std::string name = "%";
    if (IsIdentifier(source)) {
      const int seen = seen_[source]++;
      name += source;
      if (seen > 0) name += "#" + std::to_string(seen);
    } else {
      name += std::to_string(next_++);
    }
    names_[static_cast<size_t>(id.index)] = name;
    return name;
  }
  // Also of values that are not defined (yet), so that broken functions can be looked at.
  std::string Use(ValueId id) const {
    if (id.index < 0 || static_cast<size_t>(id.index) >= names_.size()) return "%<invalid>";
    const std::string& name = names_[static_cast<size_t>(id.index)];
    return name.empty() ? "%<undefined " + std::to_string(id.index) + ">" : name;
  }

 private:
  const Function& function_;
  std::vector<std::string> names_;
  std::map<std::string, int> seen_;
  int next_ = 0;
};

std::string ArgumentText(const Function& f, const Argument& a, Names& names) {
  const Value& value = f.value(a.value);
  std::string text = names.Define(a.value) + ": " + value.type.ToString();
  // Under a number the value is named as the argument, unless told otherwise.
  if (!IsIdentifier(value.name) && value.name != a.name) text += " " + QuoteText(value.name);
  text += " " + std::string(ArgumentKindName(a.kind)) + " " + QuoteText(a.name);
  if (!a.slot.empty()) text += " slot " + QuoteText(a.slot);
  return text;
}

std::string NodeText(const Function& f, const Node& node, Names& names) {
  std::string text;
  std::string operands;
  for (ValueId v : node.inputs) {
    if (!operands.empty()) operands += ", ";
    operands += names.Use(v);
  }
  for (ValueId v : node.outputs) {
    if (!text.empty()) text += ", ";
    const Value& value = f.value(v);
    text += names.Define(v) + ": " + value.type.ToString();
    if (!value.name.empty() && !IsIdentifier(value.name)) text += " " + QuoteText(value.name);
  }
  text += " = ";
  text += node.op == nullptr ? "<removed>" : std::string(node.op->name);
  text += "(" + operands + ")";
  if (!node.attributes.empty()) text += " " + AttributesText(node.attributes);
  if (node.role != Role::kForward) text += " role " + std::string(RoleName(node.role));
  if (node.op_id >= 0) text += " op " + std::to_string(node.op_id);
  if (!node.source.empty()) text += " from " + QuoteText(node.source);
  return text;
}

void PrintFunction(const Function& f, const std::string& indent, std::string& out) {
  Names names(f);
  out += indent + "func " + Symbol(f.name()) + "(";
  for (size_t i = 0; i < f.arguments().size(); ++i) {
    out += (i > 0 ? ",\n" : "\n") + indent + "    " + ArgumentText(f, f.arguments()[i], names);
  }
  out += ") {\n";
  for (NodeId id : f.order()) out += indent + "  " + NodeText(f, f.node(id), names) + "\n";
  out += indent + "  return";
  for (size_t i = 0; i < f.results().size(); ++i) {
    const FunctionResult& r = f.results()[i];
    out +=
        (i > 0 ? ",\n" : "\n") + indent + "    " + names.Use(r.value) + " as " + QuoteText(r.name);
    if (r.alias_argument >= 0) out += " alias " + std::to_string(r.alias_argument);
  }
  out += "\n" + indent + "}\n";
}

}  // namespace

std::string Print(const Function& function) {
  std::string out;
  PrintFunction(function, "", out);
  return out;
}

std::string Print(const Module& module) {
  std::string out = "module " + Symbol(module.name) + " {\n";
  for (const PersistentTensor& t : module.tensors) {
    out += "  tensor " + std::string(ArgumentKindName(t.kind)) + " " + QuoteText(t.name) + ": " +
           t.type.ToString();
    if (!t.alias.empty()) out += " alias " + QuoteText(t.alias);
    out += "\n";
  }
  for (const Function& f : module.functions) PrintFunction(f, "  ", out);
  return out + "}\n";
}

}  // namespace hyper::ir
