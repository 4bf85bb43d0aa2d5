// Recursive descent over the grammar in ir/text.md; no rule nests, so hostile text cannot exhaust
// the stack, and nothing is allocated beyond the size of the text.
#include <map>
#include <optional>
#include <set>

#include "base/strings.h"
#include "ir/node_check.h"
#include "ir/op_def.h"
#include "ir/text.h"
#include "ir/text_lexer.h"
#include "ir/text_values.h"

namespace hyper::ir {
namespace {

template <typename Enum>
std::optional<Enum> EnumFromName(std::string_view name, Enum last,
                                 std::string_view (*name_of)(Enum)) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

class ModuleParser {
 public:
  ModuleParser(std::string_view text, std::string_view file) : lexer_(text, file) {}
  Result<Module> Run();

 private:
  // "%name" as written and the source name that it stands for (empty for numbers).
  struct ValueName {
    std::string written;
    std::string source;
    size_t position = 0;
  };
  struct Output {
    ValueName name;
    std::optional<TensorType> type;
    std::string source;
  };

  Result<std::string> Symbol();
  Result<ValueName> ParseValueName();
  Result<ValueId> Use();
  Status Define(const ValueName& name, ValueId id);
  Result<ArgumentKind> Kind();
  Status Tensor(Module& module);
  Status ParseFunction(Module& module);
  Status ParseArgument(Function& f);
  Status ParseNode(Function& f);
  Status ParseNodeTail(Node& node);
  Status ParseReturn(Function& f);

  Lexer lexer_;
  std::map<std::string, ValueId> values_;
};

Result<std::string> ModuleParser::Symbol() {
  HYPER_RETURN_IF_ERROR(lexer_.Expect("@"));
  if (lexer_.Peek() == '"') return lexer_.Quoted();
  const std::string_view name = lexer_.Name();
  if (!IsIdentifier(name)) return lexer_.Error("expected a name after '@'");
  return std::string(name);
}

Result<ModuleParser::ValueName> ModuleParser::ParseValueName() {
  ValueName result;
  result.position = lexer_.Position();
  HYPER_RETURN_IF_ERROR(lexer_.Expect("%"));
  const std::string_view base = lexer_.Name();
  if (base.empty()) return lexer_.Error("expected a name after '%'", result.position);
  result.written = std::string(base);
  if (IsIdentifier(base)) {
    result.source = std::string(base);
    if (lexer_.Accept("#")) result.written += "#" + std::string(lexer_.Name());
  } else if (base.find_first_not_of("0123456789") != std::string_view::npos) {
    return lexer_.Error("'%" + std::string(base) + "' is neither a name nor a number",
                        result.position);
  }
  return result;
}

Result<ValueId> ModuleParser::Use() {
  HYPER_ASSIGN_OR_RETURN(const ValueName name, ParseValueName());
  const auto it = values_.find(name.written);
  if (it == values_.end()) {
    return lexer_.Error("'%" + name.written + "' is not defined before this use", name.position);
  }
  return it->second;
}

Status ModuleParser::Define(const ValueName& name, ValueId id) {
  if (!values_.emplace(name.written, id).second) {
    return lexer_.Error("'%" + name.written + "' is defined twice", name.position);
  }
  return Status::Ok();
}

Result<ArgumentKind> ModuleParser::Kind() {
  const size_t start = lexer_.Position();
  const std::string_view word = lexer_.Word();
  const auto kind = EnumFromName(word, ArgumentKind::kRng, ArgumentKindName);
  if (!kind) return lexer_.Error("expected a kind such as input or parameter", start);
  return *kind;
}

Status ModuleParser::Tensor(Module& module) {
  PersistentTensor tensor;
  HYPER_ASSIGN_OR_RETURN(tensor.kind, Kind());
  HYPER_ASSIGN_OR_RETURN(tensor.name, lexer_.Quoted());
  HYPER_RETURN_IF_ERROR(lexer_.Expect(":"));
  HYPER_ASSIGN_OR_RETURN(tensor.type, ParseType(lexer_));
  if (lexer_.Accept("alias")) {
    HYPER_ASSIGN_OR_RETURN(tensor.alias, lexer_.Quoted());
  }
  module.tensors.push_back(std::move(tensor));
  return Status::Ok();
}

Status ModuleParser::ParseArgument(Function& f) {
  HYPER_ASSIGN_OR_RETURN(const ValueName name, ParseValueName());
  HYPER_RETURN_IF_ERROR(lexer_.Expect(":"));
  HYPER_ASSIGN_OR_RETURN(TensorType type, ParseType(lexer_));
  std::optional<std::string> source;
  if (!name.source.empty()) source = name.source;
  if (lexer_.Peek() == '"') {
    HYPER_ASSIGN_OR_RETURN(source, lexer_.Quoted());
  }
  // "%x: f32[2]" alone is an input of that name.
  ArgumentKind kind = ArgumentKind::kInput;
  std::string logical = source.value_or(name.written);
  std::string slot;
  if (lexer_.Peek() != ',' && lexer_.Peek() != ')') {
    HYPER_ASSIGN_OR_RETURN(kind, Kind());
    HYPER_ASSIGN_OR_RETURN(logical, lexer_.Quoted());
    if (lexer_.Accept("slot")) {
      HYPER_ASSIGN_OR_RETURN(slot, lexer_.Quoted());
    }
  }
  const ValueId id = f.AddArgument(std::move(type), kind, logical, std::move(slot));
  f.value(id).name = source.value_or(logical);
  return Define(name, id);
}

Status ModuleParser::ParseNodeTail(Node& node) {
  if (lexer_.Accept("role")) {
    const size_t start = lexer_.Position();
    const auto role = EnumFromName(lexer_.Word(), Role::kUpdate, RoleName);
    if (!role) {
      return lexer_.Error("expected forward, input_grad, weight_grad or update", start);
    }
    node.role = *role;
  }
  if (lexer_.Accept("op")) {
    HYPER_ASSIGN_OR_RETURN(node.op_id, lexer_.Integer());
  }
  if (lexer_.Accept("from")) {
    HYPER_ASSIGN_OR_RETURN(node.source, lexer_.Quoted());
  }
  return Status::Ok();
}

Status ModuleParser::ParseNode(Function& f) {
  std::vector<Output> outputs;
  do {
    Output& o = outputs.emplace_back();
    HYPER_ASSIGN_OR_RETURN(o.name, ParseValueName());
    o.source = o.name.source;
    if (!lexer_.Accept(":")) continue;  // types may be left out: inference knows them
    HYPER_ASSIGN_OR_RETURN(o.type, ParseType(lexer_));
    if (lexer_.Peek() == '"') {
      HYPER_ASSIGN_OR_RETURN(o.source, lexer_.Quoted());
    }
  } while (lexer_.Accept(","));
  HYPER_RETURN_IF_ERROR(lexer_.Expect("="));
  const size_t op_position = lexer_.Position();
  const std::string op_name(lexer_.Word());
  const OpDef* op = CoreOps().Find(op_name);
  if (op == nullptr) {
    std::vector<std::string> names;
    for (const OpDef* o : CoreOps().ops()) names.emplace_back(o->name);
    const std::string hint = DidYouMean(op_name, names);
    return lexer_.Error("no core op '" + op_name + "'" + (hint.empty() ? "" : "; " + hint),
                        op_position);
  }
  std::vector<ValueId> inputs;
  std::vector<TensorType> input_types;
  std::vector<DType> input_dtypes;
  HYPER_RETURN_IF_ERROR(lexer_.Expect("("));
  if (!lexer_.Accept(")")) {
    do {
      HYPER_ASSIGN_OR_RETURN(const ValueId v, Use());
      inputs.push_back(v);
      input_types.push_back(f.type(v));
      input_dtypes.push_back(f.type(v).dtype);
    } while (lexer_.Accept(","));
    HYPER_RETURN_IF_ERROR(lexer_.Expect(")"));
  }
  Attributes attributes;
  if (lexer_.Accept("{") && !lexer_.Accept("}")) {
    do {
      const size_t start = lexer_.Position();
      const std::string name(lexer_.Word());
      if (name.empty() || attributes.Has(name)) {
        return lexer_.Error(
            name.empty() ? "expected an attribute name" : "attribute '" + name + "' occurs twice",
            start);
      }
      HYPER_RETURN_IF_ERROR(lexer_.Expect("="));
      HYPER_ASSIGN_OR_RETURN(Attribute value, ParseAttribute(lexer_, input_dtypes));
      attributes.Set(name, std::move(value));
    } while (lexer_.Accept(","));
    HYPER_RETURN_IF_ERROR(lexer_.Expect("}"));
  }
  if (const Status s = NormalizeAttributes(*op, &attributes); !s.ok()) {
    return lexer_.Error(s.message(), op_position);
  }
  const Result<std::vector<TensorType>> types = InferChecked(*op, input_types, attributes);
  if (!types.ok()) return lexer_.Error(types.status().message(), op_position);
  if (types->size() != outputs.size()) {
    return lexer_.Error("op '" + op_name + "' has " + std::to_string(types->size()) + " results, " +
                            std::to_string(outputs.size()) + " are named",
                        op_position);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].type && *outputs[i].type != (*types)[i]) {
      return lexer_.Error("'%" + outputs[i].name.written + "' is " + (*types)[i].ToString() +
                              ", written as " + outputs[i].type->ToString(),
                          outputs[i].name.position);
    }
  }
  const NodeId id = f.AddNode(op, std::move(inputs), std::move(attributes), *types);
  HYPER_RETURN_IF_ERROR(ParseNodeTail(f.node(id)));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueId v = f.node(id).outputs[i];
    f.value(v).name = outputs[i].source;
    HYPER_RETURN_IF_ERROR(Define(outputs[i].name, v));
  }
  return Status::Ok();
}

Status ModuleParser::ParseReturn(Function& f) {
  if (lexer_.Peek() == '}') return Status::Ok();
  do {
    HYPER_ASSIGN_OR_RETURN(const ValueId v, Use());
    std::string name;
    if (lexer_.Accept("as")) {
      HYPER_ASSIGN_OR_RETURN(name, lexer_.Quoted());
    }
    int alias = -1;
    if (lexer_.Accept("alias")) {
      const size_t start = lexer_.Position();
      HYPER_ASSIGN_OR_RETURN(const int64_t index, lexer_.Integer());
      if (index < 0 || index >= static_cast<int64_t>(f.arguments().size())) {
        return lexer_.Error("alias of argument " + std::to_string(index) + "; there are " +
                                std::to_string(f.arguments().size()),
                            start);
      }
      alias = static_cast<int>(index);
    }
    f.AddResult(v, std::move(name), alias);
  } while (lexer_.Accept(","));
  return Status::Ok();
}

Status ModuleParser::ParseFunction(Module& module) {
  values_.clear();
  HYPER_ASSIGN_OR_RETURN(std::string name, Symbol());
  Function f(std::move(name));
  HYPER_RETURN_IF_ERROR(lexer_.Expect("("));
  if (!lexer_.Accept(")")) {
    do {
      HYPER_RETURN_IF_ERROR(ParseArgument(f));
    } while (lexer_.Accept(","));
    HYPER_RETURN_IF_ERROR(lexer_.Expect(")"));
  }
  HYPER_RETURN_IF_ERROR(lexer_.Expect("{"));
  while (lexer_.Peek() == '%') HYPER_RETURN_IF_ERROR(ParseNode(f));
  if (!lexer_.Accept("return")) return lexer_.Error("expected a node (%name = ...) or 'return'");
  HYPER_RETURN_IF_ERROR(ParseReturn(f));
  HYPER_RETURN_IF_ERROR(lexer_.Expect("}"));
  module.functions.push_back(std::move(f));
  return Status::Ok();
}

Result<Module> ModuleParser::Run() {
  Module module;
  const bool wrapped = lexer_.Accept("module");  // bare functions stand for a nameless module
  if (wrapped) {
    HYPER_ASSIGN_OR_RETURN(module.name, Symbol());
    HYPER_RETURN_IF_ERROR(lexer_.Expect("{"));
  }
  while (true) {
    if (lexer_.Accept("tensor")) {
      HYPER_RETURN_IF_ERROR(Tensor(module));
    } else if (lexer_.Accept("func")) {
      HYPER_RETURN_IF_ERROR(ParseFunction(module));
    } else {
      break;
    }
  }
  if (wrapped) {
    if (!lexer_.Accept("}")) return lexer_.Error("expected 'tensor', 'func' or '}'");
  } else if (module.functions.empty()) {
    return lexer_.Error("expected 'module' or 'func'");
  }
  if (!lexer_.AtEnd()) return lexer_.Error("unexpected text after the end of the module");
  HYPER_RETURN_IF_ERROR(Verify(module));
  return module;
}

}  // namespace

Result<Module> Parse(std::string_view text, std::string_view file_name) {
  return Guard([&] { return ModuleParser(text, file_name).Run(); });
}

}  // namespace hyper::ir
