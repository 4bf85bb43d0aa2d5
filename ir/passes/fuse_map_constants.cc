// fuse_map_constants: a map input that is one constant everywhere becomes a constant of the
// expression, so that no kernel reads a buffer for it.
// Before: any valid module. After: every map has an input that varies, or only constant inputs
// (canonicalize turns those into constants). Place: before fusion; nothing undoes it.
#include "ir/op_def.h"
#include "ir/passes/passes.h"
#include "ir/scalar_eval.h"

namespace hyper::ir {
namespace {

int ConstantIn(ExprBuilder& e, const HostTensor& scalar) {
  const Scalar value = ElementOf(scalar, 0);
  const DType dtype = scalar.type().dtype;
  return IsFloat(dtype) ? e.Constant(dtype, value.f) : e.ConstantInt(dtype, value.i);
}

// Number of inputs folded.
int64_t FoldNode(Function& f, Node& node) {
  std::vector<std::optional<HostTensor>> splats;
  int64_t folded = 0;
  for (ValueId v : node.inputs) {
    splats.push_back(SplatValue(f, v));
    if (splats.back()) ++folded;
  }
  if (folded == 0 || folded == static_cast<int64_t>(node.inputs.size())) return 0;
  ExprBuilder e;
  std::vector<int> operands;
  std::vector<ValueId> kept;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (splats[i]) {
      operands.push_back(ConstantIn(e, *splats[i]));
    } else {
      operands.push_back(e.Input(static_cast<int>(kept.size()), f.type(node.inputs[i]).dtype));
      kept.push_back(node.inputs[i]);
    }
  }
  const int root = e.Splice(node.attributes.GetExpr("expr"), operands);
  node.attributes.Set("expr", e.Build(root));
  node.inputs = std::move(kept);
  return folded;
}

Status Run(Module& module, PassContext& context) {
  int64_t folded = 0;
  for (Function& f : module.functions) {
    for (NodeId id : f.order()) {
      Node& node = f.node(id);
      if (node.op->name == "map") folded += FoldNode(f, node);
    }
  }
  context.statistics["inputs folded"] = folded;
  context.changed = folded > 0;
  return Status::Ok();
}

}  // namespace

Pass FuseMapConstantsPass() {
  return {.name = "fuse_map_constants",
          .summary = "folds constant inputs of maps into their expressions",
          .run = Run};
}

}  // namespace hyper::ir
