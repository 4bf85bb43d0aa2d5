#include "frontend/onnx/import_function.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/strings.h"
#include "ir/reference/reference.h"
#include "onnx/defs/schema.h"

namespace hyper::onnx_frontend {
namespace {

using ir::ArgumentKind;
using ir::HostTensor;
using ir::ValueId;
using onnx::NodeProto;

constexpr int64_t kMaxFoldedBytes = int64_t{64} << 20;
constexpr int kMaxBodyDepth = 16;

const onnx::OpSchema* SchemaOf(const NodeProto& node, int opset) {
  return onnx::OpSchemaRegistry::Instance()->GetSchema(node.op_type(), opset,
                                                       NormalDomain(node.domain()));
}

bool HasBody(const onnx::OpSchema* schema) {
  return schema != nullptr && (schema->HasFunction() || schema->HasContextDependentFunction());
}

bool Understood(const ImportTarget& target, int since) {
  return since >= target.oldest && since <= target.newest;
}

// Versions of foreign domains say nothing about their ops.
int SinceOf(const onnx::OpSchema* schema) { return schema == nullptr ? 1 : schema->SinceVersion(); }

// Operands must have types that the op allows, and one type where it asks for one. `widened`: f64
// stands for the f32 of the file.
void CheckOperandTypes(const onnx::OpSchema& schema, const std::vector<Tensor*>& inputs,
                       bool widened) {
  std::map<std::string, int> bound;  // type parameter -> first operand that has it
  const auto& formals = schema.inputs();
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    const Tensor* operand = inputs[static_cast<size_t>(i)];
    if (operand == nullptr || formals.empty() || !operand->is_tensor()) continue;
    const auto& formal = formals[std::min(static_cast<size_t>(i), formals.size() - 1)];
    const std::string type =
        fmt::format("tensor({})", OnnxTypeName(DTypeToOnnx(operand->type.dtype)));
    if (std::none_of(formal.GetTypes().begin(), formal.GetTypes().end(),
                     [&](const std::string* allowed) {
                       return *allowed == type ||
                              (widened && type == "tensor(double)" && *allowed == "tensor(float)");
                     })) {
      Fail(fmt::format("operand {} ('{}') is a {}, which the operator does not take", i,
                       formal.GetName(), type));
    }
    if (!formal.GetIsHomogeneous()) continue;
    const auto [it, inserted] = bound.emplace(formal.GetTypeStr(), i);
    const ir::DType first = inputs[static_cast<size_t>(it->second)]->type.dtype;
    if (first != operand->type.dtype) {
      Fail(fmt::format("operands {} and {} have different element types, {} and {}", it->second, i,
                       ir::DTypeName(first), ir::DTypeName(operand->type.dtype)));
    }
  }
}

onnx::TypeProto TypeProtoOf(const Tensor& of) {
  onnx::TypeProto proto;
  auto* tensor = of.sequence == nullptr
                     ? proto.mutable_tensor_type()
                     : proto.mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type();
  tensor->set_elem_type(DTypeToOnnx(of.type.dtype));
  if (of.sequence != nullptr) return proto;  // elements may differ in shape
  tensor->mutable_shape();
  for (int64_t d : of.type.dims) tensor->mutable_shape()->add_dim()->set_dim_value(d);
  return proto;
}

}  // namespace

std::map<const NodeProto*, std::string> UniqueSources(const onnx::GraphProto& graph) {
  std::map<std::string, int> count;
  for (const NodeProto& node : graph.node()) ++count[node.name()];
  std::map<const NodeProto*, std::string> sources;
  for (const NodeProto& node : graph.node()) {
    const bool good = !node.name().empty() && count[node.name()] == 1;
    sources[&node] = good ? node.name() : node.output_size() > 0 ? node.output(0) : std::string();
  }
  return sources;
}

Status Importable(const NodeProto& node, int opset) {
  const ImportTarget* target = ImportTargets().Find(NormalDomain(node.domain()), node.op_type());
  const onnx::OpSchema* schema = SchemaOf(node, opset);
  if (target != nullptr && Understood(*target, SinceOf(schema))) return Status::Ok();
  if (HasBody(schema)) return Status::Ok();
  if (target != nullptr) {
    return RefusalStatus(Refusal::kLimit,
                         fmt::format("version {} (versions {} to {} are)", SinceOf(schema),
                                     target->oldest, target->newest));
  }
  return OperatorRefusal(NormalDomain(node.domain()), node.op_type());
}

FunctionImporter::FunctionImporter(const LoadedModel& model, const ParameterPlan& plan,
                                   ImportMode mode, ir::Function* function,
                                   Diagnostics* diagnostics)
    : model_(model),
      plan_(plan),
      mode_(mode),
      function_(function),
      diagnostics_(diagnostics),
      builder_(function) {
  for (const NodeProto& node : model.graph().node()) {
    for (const std::string& name : node.input()) names_.Add(name);
    for (const std::string& name : node.output()) names_.Add(name);
  }
}

ir::TensorType FunctionImporter::Widened(ir::TensorType type) const {
  if (mode_.double_precision && type.dtype == ir::DType::kF32) type.dtype = ir::DType::kF64;
  return type;
}

void FunctionImporter::Bind(const std::string& name, Tensor tensor) {
  if (name.empty()) return;
  if (!tensor.is_tensor()) {
    tensor.type = Widened(tensor.type);
  } else if (const ir::TensorType wide = Widened(tensor.type); wide != tensor.type) {
    // Values from attributes; everything else is wide already.
    tensor.type = wide;
    if (tensor.known) {
      tensor.constant = ConvertTensor(tensor.constant, wide.dtype);
      tensor.value = {};
    } else {
      tensor.value = builder_.Cast(wide.dtype, tensor.value);
    }
  }
  if (tensor.value.valid()) {
    ir::Value& value = function_->value(tensor.value);
    if (value.name.empty()) value.name = name;
  }
  tensors_[name] = std::move(tensor);
}

void FunctionImporter::AddArguments(
    const std::vector<std::pair<std::string, ir::TensorType>>& inputs) {
  auto add = [&](const std::string& name, const ir::TensorType& given, ArgumentKind kind) {
    const ir::TensorType type = Widened(given);
    Bind(name, {type, function_->AddArgument(type, kind, name), {}, false});
  };
  for (const auto& [name, type] : inputs) add(name, type, ArgumentKind::kInput);
  for (const ParameterDecision& d : plan_.tensors) {
    if (d.constant) {
      // An un-merged Identity of a number is that number.
      Bind(d.name, {d.type, {}, d.value, true});
    } else if (d.needed) {
      add(d.name, d.type, d.kind);
    }
  }
  for (const NamedTensor& t : model_.tensors) {
    const bool bound = tensors_.count(t.name) > 0 || plan_.views.count(t.name) > 0;
    if (bound || !t.value.defined()) continue;
    Bind(t.name, {t.value.type(), {}, t.value, true});
  }
}

void FunctionImporter::AddBound(const std::string& name, const HostTensor& value) {
  Bind(name, {value.type(), {}, value, true});
}

Result<ValueId> FunctionImporter::DataArgument(const std::string& name,
                                               const ir::TensorType& type) {
  if (Tensor* found = Lookup(name); found != nullptr) {
    if (found->type != type) {
      return InvalidArgument(fmt::format("'{}' has type {}, expected {}", name,
                                         found->type.ToString(), type.ToString()));
    }
    return Materialise(builder_, *found);
  }
  const ValueId value = function_->AddArgument(type, ArgumentKind::kInput, name);
  Bind(name, {type, value, {}, false});
  return value;
}

Tensor* FunctionImporter::Lookup(const std::string& name) {
  if (const auto it = tensors_.find(name); it != tensors_.end()) return &it->second;
  const auto view = plan_.views.find(name);
  if (view == plan_.views.end()) return nullptr;
  const auto it = tensors_.find(view->second.parameter);
  if (it == tensors_.end()) return nullptr;
  const TensorView& how = view->second.view;
  if (it->second.known) {
    const HostTensor value = ApplyView(it->second.constant, how);
    Bind(name, {value.type(), {}, value, true});
  } else {
    builder_.SetContext(ir::Role::kForward, -1, name);
    ValueId value = it->second.value;
    if (!how.permutation.empty()) {
      value = builder_.Transpose(value, {how.permutation.begin(), how.permutation.end()});
    }
    value = builder_.Reshape(value, how.dims);
    Bind(name, {builder_.type(value), value, {}, false});
  }
  return &tensors_.at(name);
}

const Tensor* FunctionImporter::Find(const std::string& name) { return Lookup(name); }

std::optional<ValueId> FunctionImporter::ValueOf(const std::string& name) {
  Tensor* found = Lookup(name);
  if (found == nullptr || !found->is_tensor()) return std::nullopt;
  builder_.SetContext(ir::Role::kForward, -1, name);
  return Materialise(builder_, *found);
}

const ParameterDecision* FunctionImporter::PersistentOperand(const NodeProto& node,
                                                             int slot) const {
  const std::string name = plan_.Reads(node, slot);
  if (inner_names_.count(name) > 0) return nullptr;
  const ParameterDecision* d = plan_.Find(name);
  return d == nullptr || d->constant ? nullptr : d;
}

NodeContext::Services FunctionImporter::ServicesFor(const NodeProto& node, const Scope& scope) {
  NodeContext::Services services;
  services.rng = [this] {
    if (!rng_.valid())
      rng_ = function_->AddArgument({ir::DType::kI64, {3}}, ArgumentKind::kRng, "rng");
    return rng_;
  };
  services.persistent_kind = [this, &node](int slot) -> std::optional<ArgumentKind> {
    const ParameterDecision* d = PersistentOperand(node, slot);
    return d == nullptr ? std::nullopt : std::optional(d->kind);
  };
  services.persistent_name = [this, &node](int slot) {
    return PersistentOperand(node, slot)->name;
  };
  services.subgraph = [this, &node, &scope](const onnx::GraphProto& graph,
                                            std::vector<Tensor> inputs, const std::string& label) {
    return ImportSubgraph(node, graph, std::move(inputs), scope, label);
  };
  services.reserve_nodes = [this](int64_t nodes) {
    if (nodes > kMaxUnrolledNodes - unrolled_nodes_) return false;
    unrolled_nodes_ += nodes;
    return true;
  };
  services.derivatives = [this, &scope](const std::vector<std::string>& inputs,
                                        std::vector<Tensor> values, int wanted,
                                        const std::string& output) {
    return Derivatives(inputs, std::move(values), wanted, output, scope);
  };
  return services;
}

std::string FunctionImporter::AskToBind(ValueId needed) {
  if (!needed.valid()) return {};
  std::set<std::string> inputs;
  std::set<ValueId> seen = {needed};
  for (std::vector<ValueId> open = {needed}; !open.empty();) {
    const ValueId value = open.back();
    open.pop_back();
    const int argument = function_->ArgumentIndex(value);
    if (argument >= 0) {
      const ir::Argument& a = function_->arguments()[static_cast<size_t>(argument)];
      if (a.kind == ArgumentKind::kInput) inputs.insert(a.name);
    }
    const ir::NodeId producer = function_->value(value).producer;
    if (!producer.valid()) continue;
    for (const ValueId operand : function_->node(producer).inputs) {
      if (seen.insert(operand).second) open.push_back(operand);
    }
  }
  if (inputs.empty()) return {};
  undecided_.insert(inputs.begin(), inputs.end());
  return fmt::format("bind the {} '{}' to a value: model.bind: {{{}: ...}}",
                     inputs.size() == 1 ? "input" : "inputs",
                     Join(std::vector<std::string>(inputs.begin(), inputs.end()), "', '"),
                     Join(std::vector<std::string>(inputs.begin(), inputs.end()), ": ..., "));
}

void FunctionImporter::ImportNodes(const std::vector<std::string>& wanted) {
  const std::map<std::string, bool> needed = Ancestors(model_, wanted);
  const std::map<const NodeProto*, std::string> sources = UniqueSources(model_.graph());
  for (int i = 0; i < model_.graph().node_size(); ++i) {
    const NodeProto& node = model_.graph().node(i);
    const bool used = std::any_of(node.output().begin(), node.output().end(),
                                  [&](const std::string& o) { return needed.count(o) > 0; });
    if (!used) continue;
    // Constants and un-merged Identity nodes are bound already.
    if (node.output_size() == 1 &&
        (tensors_.count(node.output(0)) > 0 || plan_.views.count(node.output(0)) > 0)) {
      continue;
    }
    const int opset = model_.node_opset[static_cast<size_t>(i)];
    ImportNode(node, {opset, sources.at(&node), NodeLocation(model_.path, node), 0});
  }
}

void FunctionImporter::ImportNode(const NodeProto& node, const Scope& scope) {
  std::vector<Tensor*> inputs;
  bool skip = false;
  for (int i = 0;; ++i) {
    std::string name = i < node.input_size() ? node.input(i) : std::string();
    bool redirected = false;
    if (node.output_size() > 0) {
      const auto split = plan_.operands.find({node.output(0), i});
      redirected = split != plan_.operands.end();
      if (redirected) name = split->second;
    }
    if (i >= node.input_size() && !redirected) break;
    Tensor* tensor_of = Lookup(name);
    inputs.push_back(tensor_of);
    if (name.empty() || tensor_of != nullptr) continue;
    skip = true;
    if (failed_.count(name) > 0) continue;  // reported where it failed
    const NamedTensor* tensor = model_.FindTensor(name);
    diagnostics_->Error(
        {scope.where},
        tensor != nullptr && !tensor->value.defined()
            ? RefusalMessage(
                  tensor->refusal,
                  fmt::format("operand '{}'{}", name,
                              tensor->onnx_type != 0 ? ": " + OnnxTypeName(tensor->onnx_type) : ""))
            : fmt::format("operand '{}' is not available", name));
  }
  const int errors = diagnostics_->error_count();
  if (skip) {
    // Behind a node that failed; what is wrong with this one too is told all the same.
    if (const Status s = Importable(node, scope.opset); !s.ok()) {
      diagnostics_->Error({scope.where}, s.message());
    }
  } else {
    const ImportTarget* target = ImportTargets().Find(NormalDomain(node.domain()), node.op_type());
    const onnx::OpSchema* schema = SchemaOf(node, scope.opset);
    builder_.SetContext(ir::Role::kForward, -1, scope.source);
    try {
      if (schema != nullptr) CheckOperandTypes(*schema, inputs, mode_.double_precision);
      if (target != nullptr && Understood(*target, SinceOf(schema))) {
        ImportWith(*target, node, SinceOf(schema), inputs, scope);
      } else if (HasBody(schema)) {
        ImportBody(node, inputs, scope);
      } else {
        throw ImportError(Importable(node, scope.opset));
      }
    } catch (const ImportError& e) {
      diagnostics_->Error({scope.where}, e.status().message(), AskToBind(e.needed()));
    } catch (const ReportedError&) {
      // The nodes of a subgraph said what is wrong.
    } catch (const InternalError& e) {
      // A typed builder met shapes that the importer did not check: refuse the node all the same.
      diagnostics_->Error({scope.where}, fmt::format("cannot be lowered: {}", e.what()));
    } catch (const std::exception& e) {
      diagnostics_->Error({scope.where}, e.what());
    }
  }
  if (skip || diagnostics_->error_count() > errors) {
    for (const std::string& output : node.output()) failed_.insert(output);
  }
}

void FunctionImporter::ImportWith(const ImportTarget& target, const NodeProto& node, int since,
                                  std::vector<Tensor*> inputs, const Scope& scope) {
  if (TryFold(target, node, since, inputs, scope)) return;
  const NodeContext::Services services = ServicesFor(node, scope);
  const size_t notes = events_.notes.size();
  NodeContext context(node, scope.opset, since, mode_, &builder_, std::move(inputs), &services,
                      &events_);
  target.import(context);
  for (size_t i = notes; i < events_.notes.size(); ++i)
    diagnostics_->Note({scope.where}, events_.notes[i]);
  events_.notes.resize(notes);  // those of a subgraph's nodes are told once
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    const Tensor& output = context.outputs()[static_cast<size_t>(i)];
    if (output.is_tensor() && !output.value.valid() && !output.known) {
      Unsupported(fmt::format("output {} ('{}')", i, node.output(i)));
    }
    Bind(node.output(i), output);
  }
}

// Nodes with known operands alone are computed now, by the reference kernels.
bool FunctionImporter::TryFold(const ImportTarget& target, const NodeProto& node, int since,
                               const std::vector<Tensor*>& inputs, const Scope& scope) {
  const bool known = std::all_of(inputs.begin(), inputs.end(),
                                 [](const Tensor* t) { return t == nullptr || t->known; });
  if (!known || target.structural || target.op == "Dropout" || target.op == "BatchNormalization") {
    return false;
  }
  ir::Function scratch("fold");
  ir::Builder builder(&scratch);
  std::vector<Tensor> copies;
  copies.reserve(inputs.size());
  std::vector<Tensor*> operands;
  for (const Tensor* t : inputs) {
    if (t == nullptr) {
      operands.push_back(nullptr);
      continue;
    }
    copies.push_back({t->type, {}, t->constant, true});
    operands.push_back(&copies.back());
  }
  ImportEvents events;
  const NodeContext::Services services = ServicesFor(node, scope);
  NodeContext context(node, scope.opset, since, mode_, &builder, operands, &services, &events);
  target.import(context);
  std::vector<int> computed;
  int64_t bytes = 0;
  for (int i = 0; i < node.output_size(); ++i) {
    const Tensor& output = context.outputs()[static_cast<size_t>(i)];
    if (output.known || !output.value.valid()) continue;
    computed.push_back(i);
    bytes += output.type.bytes();
    scratch.AddResult(output.value, node.output(i));
  }
  if (bytes > kMaxFoldedBytes) return false;
  std::vector<HostTensor> values;
  if (!computed.empty()) values = OrFail(ir::Evaluate(scratch, {}));
  for (int i = 0; i < node.output_size(); ++i) {
    const Tensor& output = context.outputs()[static_cast<size_t>(i)];
    if (output.known) Bind(node.output(i), {output.type, {}, output.constant, true});
  }
  for (size_t k = 0; k < computed.size(); ++k) {
    Bind(node.output(computed[k]), {values[k].type(), {}, values[k], true});
  }
  return true;
}

void FunctionImporter::ImportBody(const NodeProto& node, const std::vector<Tensor*>& inputs,
                                  const Scope& scope) {
  if (scope.depth >= kMaxBodyDepth) Unsupported("function bodies are nested too deeply");
  const onnx::OpSchema* schema = SchemaOf(node, scope.opset);
  const onnx::FunctionProto* body =
      schema->HasFunction() ? schema->GetFunction(scope.opset) : nullptr;
  onnx::FunctionProto built;
  if (body == nullptr) {
    std::vector<onnx::TypeProto> types;
    for (const Tensor* t : inputs)
      types.push_back(t == nullptr ? onnx::TypeProto() : TypeProtoOf(*t));
    onnx::FunctionBodyBuildContextImpl context(node, types);
    if (!schema->BuildContextDependentFunction(context, built, scope.opset)) {
      Unsupported("ONNX gives no function body for these operands");
    }
    body = &built;
  }
  const int own = ImportedVersion(body->opset_import(), "");
  Scope inner = scope;
  inner.opset = own == 0 ? scope.opset : own;
  ++inner.depth;
  // Attributes that the call leaves out have the defaults of the schema.
  NodeProto call = node;
  for (const auto& entry : schema->attributes()) {
    const bool given = std::any_of(call.attribute().begin(), call.attribute().end(),
                                   [&](const auto& a) { return a.name() == entry.first; });
    if (given || entry.second.default_value.name().empty()) continue;
    *call.add_attribute() = entry.second.default_value;
  }
  for (const NodeProto& step : ExpandCall(*body, call, &names_)) {
    inner.where = fmt::format("{}: {} of its function body", scope.where, step.op_type());
    ImportNode(step, inner);
  }
}

}  // namespace hyper::onnx_frontend
