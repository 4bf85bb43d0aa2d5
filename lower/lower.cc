#include <fmt/format.h>

#include <algorithm>

#include "ir/op_def.h"
#include "lower/decompose.h"
#include "lower/lowering.h"
#include "lower/traffic.h"
#include "lower/view.h"

namespace hyper::lower {

using ir::Node;
using ir::NodeId;
using ir::ValueId;

FunctionLowering::FunctionLowering(const ir::Function& function, RootTable* roots,
                                   const LowerOptions& options, bool markers)
    : f_(function), a_(function), roots_(*roots), options_(options), markers_(markers) {
  const size_t values = static_cast<size_t>(f_.value_count());
  results_of_.resize(values);
  for (size_t i = 0; i < f_.results().size(); ++i) {
    results_of_[I(a_.Base(f_.results()[i].value))].push_back(static_cast<int>(i));
  }
  place_.resize(values);
  forced_.resize(values);
  accumulates_.assign(values, false);
  base_readers_.resize(values);
  extra_.resize(static_cast<size_t>(f_.node_count()));
  part_.assign(static_cast<size_t>(f_.node_count()), -1);
  finish_.assign(static_cast<size_t>(f_.node_count()), -1);
}

Result<LoweredFunction> FunctionLowering::Run(std::string name) {
  out_.name = std::move(name);
  HYPER_RETURN_IF_ERROR(PlaceArguments());
  if (options_.reference_kernels) {
    HYPER_RETURN_IF_ERROR(RunReferenceMode());
    HYPER_RETURN_IF_ERROR(FinishResults());
    AccountTraffic(roots_.all(), &out_);
    return std::move(out_);
  }
  for (NodeId id : f_.order()) {
    if (a_.Kind(id) == NodeKind::kView || a_.Kind(id) == NodeKind::kCheap) continue;
    for (ValueId v : f_.node(id).inputs) {
      std::vector<NodeId>& readers = base_readers_[I(a_.Base(v))];
      if (readers.empty() || readers.back() != id) readers.push_back(id);
    }
  }
  ForceResults();
  ForceConcats();
  HYPER_ASSIGN_OR_RETURN(Clusters clusters, FormClusters(a_, extra_));
  out_.unfused = std::move(clusters.unfused);
  for (size_t c = 0; c < clusters.clusters.size(); ++c) {
    const Cluster& cluster = clusters.clusters[c];
    if (!cluster.fused()) part_[I(cluster.op)] = static_cast<int>(c);
    for (const Member& m : cluster.group.members) {
      (m.finish ? finish_ : part_)[I(m.node)] = static_cast<int>(c);
    }
  }
  out_.node_kernels = part_;
  for (size_t c = 0; c < clusters.clusters.size(); ++c) {
    at_ = static_cast<int>(c);
    const Cluster& cluster = clusters.clusters[c];
    const size_t before = out_.ops.size();
    HYPER_RETURN_IF_ERROR(cluster.fused() ? EmitFused(cluster) : EmitSingle(cluster.op));
    // Both stages of a reduction are one group, as are a kernel and the copies it needs.
    int group = static_cast<int>(c) + 1;
    for (const Member& m : cluster.group.members) {
      if (m.finish) group = part_[I(m.node)] + 1;
    }
    for (size_t i = before; i < out_.ops.size(); ++i) out_.ops[i].group = group;
  }
  HYPER_RETURN_IF_ERROR(FinishResults());
  AccountTraffic(roots_.all(), &out_);
  return std::move(out_);
}

// One reference call per op in program order; everything row-major.
Status FunctionLowering::RunReferenceMode() {
  for (const ir::FunctionResult& r : f_.results()) {
    if (r.alias_argument < 0) continue;
    const ValueId argument = f_.arguments()[static_cast<size_t>(r.alias_argument)].value;
    const Node* node = a_.Producer(r.value);
    // Updates and first accumulations write their argument; views go by way of a copy.
    if (node == nullptr || forced_[I(r.value)]) continue;
    const bool in_place =
        node->op->in_place.has_value() || node->op->name == "copy" || node->op->name == "map";
    if (in_place) forced_[I(r.value)] = place_[I(argument)];
  }
  for (NodeId id : f_.order()) {
    const Node& node = f_.node(id);
    if (node.op->name == "constant") {
      const RootId root = roots_.Constant(node.attributes.Tensor("value"));
      Record(node.outputs[0], {root, DenseView(f_.type(node.outputs[0]))});
      continue;
    }
    for (ValueId v : node.outputs) {
      if (!forced_[I(v)]) {
        Record(v, NewRoot(f_.type(v), DenseView(f_.type(v)), fmt::format("%{}", v.index)));
      }
    }
    HYPER_RETURN_IF_ERROR(EmitReference(id));
    EmitMarkers(node);
  }
  return {};
}

Result<Place> FunctionLowering::MaterializeCheap(ValueId v) {
  const Node& node = *a_.Producer(v);
  if (node.op->name == "constant") {
    Record(v, {roots_.Constant(node.attributes.Tensor("value")), DenseView(f_.type(v))});
    return *place_[I(v)];
  }
  GeneratedKernel kernel;
  kernel.form = "map";
  LoweredOp op;
  std::vector<ValueId> inputs;
  for (ValueId in : node.inputs) {
    HYPER_ASSIGN_OR_RETURN(const Place p, PlaceOf(in));
    op.operands.push_back(Read(p));
    inputs.push_back(kernel.body.AddArgument(f_.type(in), ir::ArgumentKind::kRng, ""));
  }
  const ir::TensorType types[] = {f_.type(v)};
  const NodeId id = kernel.body.AddNode(node.op, inputs, node.attributes, types);
  kernel.body.node(id).op_id = node.op_id;
  kernel.body.AddResult(kernel.body.node(id).outputs[0], "");
  const Place place = NewRoot(f_.type(v), DenseView(f_.type(v)), fmt::format("%{}", v.index));
  Record(v, place);
  op.operands.push_back(Write(place));
  op.bytes_moved = kernel.lower_bound_bytes = OperandBytes(op.operands);
  op.kernel = std::move(kernel);
  AddOp(std::move(op), node);
  return place;
}

namespace {

struct Variant {
  std::string_view function, name;
  StepVariant step;
};
constexpr Variant kVariants[] = {
    {"count", "count", StepVariant::kPlain},
    {"step", "step_first", StepVariant::kFirst},
    {"step", "step_next", StepVariant::kNext},
    {"stat_weight", "stat_weight", StepVariant::kPlain},
    {"grad_norm", "grad_norm", StepVariant::kPlain},
    {"update", "update", StepVariant::kPlain},
    {"eval", "eval", StepVariant::kPlain},
};

}  // namespace

Result<LoweredModule> Lower(const ir::Module& module, const LowerOptions& options) {
  return Guard([&]() -> Result<LoweredModule> {
    LoweredModule out;
    out.name = module.name;
    out.source = module;
    RootTable roots(&out.roots);
    for (const Variant& variant : kVariants) {
      const ir::Function* function = module.Find(variant.function);
      if (function == nullptr) continue;
      HYPER_ASSIGN_OR_RETURN(const ir::Function form,
                             Decompose(*function, variant.step, options.reference_kernels));
      const bool step = variant.step != StepVariant::kPlain;
      FunctionLowering lowering(form, &roots, options, step);
      Result<LoweredFunction> lowered = lowering.Run(std::string(variant.name));
      if (!lowered.ok()) {
        return lowered.status().WithContext(fmt::format("lowering @{}", variant.function));
      }
      out.functions.push_back(std::move(lowered).value());
      if (variant.step == StepVariant::kFirst) out.parameter_order = lowering.gradients();
    }
    // Parameters without a gradient keep the model's order behind the others.
    std::set<std::string> listed(out.parameter_order.begin(), out.parameter_order.end());
    for (const ir::PersistentTensor& t : module.tensors) {
      if (t.kind != ir::ArgumentKind::kParameter) continue;
      if (listed.insert(t.name).second) out.parameter_order.push_back(t.name);
    }
    return out;
  });
}

}  // namespace hyper::lower
