// dce: removes nodes whose outputs nobody reads, and arguments that only they read.
// Before: any valid module. After: every node reaches a result or has side effects; arguments that
// the runtime could leave out (scalars, the random key, frozen weights, state) are in use.
// Place: after every pass that replaces uses. Updates are never removed.
#include "ir/op_def.h"
#include "ir/passes/passes.h"

namespace hyper::ir {
namespace {

Status Run(Module& module, PassContext& context) {
  int64_t removed = 0;
  int64_t arguments = 0;
  for (Function& f : module.functions) {
    std::vector<bool> used = ResultValues(f);
    std::vector<bool> dead(static_cast<size_t>(f.node_count()), false);
    for (size_t i = f.order().size(); i-- > 0;) {
      const NodeId id = f.order()[i];
      const Node& node = f.node(id);
      bool live = node.op->has_side_effects;
      for (ValueId v : node.outputs) live = live || used[static_cast<size_t>(v.index)];
      if (live) {
        for (ValueId v : node.inputs) used[static_cast<size_t>(v.index)] = true;
      } else {
        dead[static_cast<size_t>(id.index)] = true;
        ++removed;
      }
    }
    f.RemoveNodes(dead);
    const size_t before = f.arguments().size();
    f.RemoveUnusedArguments(
        {ArgumentKind::kScalar, ArgumentKind::kRng, ArgumentKind::kFrozen, ArgumentKind::kState});
    arguments += static_cast<int64_t>(before - f.arguments().size());
  }
  context.statistics["nodes removed"] = removed;
  context.statistics["arguments removed"] = arguments;
  context.changed = removed + arguments > 0;
  return Status::Ok();
}

}  // namespace

Pass DcePass() {
  return {.name = "dce", .summary = "removes nodes and arguments without use", .run = Run};
}

}  // namespace hyper::ir
