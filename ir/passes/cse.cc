// cse: merges nodes that compute the same value from the same inputs.
// Before: any valid module. After: no two pure nodes of a function have equal op, attributes and
// inputs (random ops: and stream number). The first one stays, so values only live longer.
// Place: before autodiff and after it; it would undo rematerialize_cheap, recompute and deliberate
// copies, so it never runs after those.
#include <map>

#include "base/sha256.h"
#include "ir/op_def.h"
#include "ir/passes/passes.h"
#include "ir/text_values.h"

namespace hyper::ir {
namespace {

// Equal keys, equal values. Text keeps -0 apart from 0, as equality of doubles would not.
std::string KeyOf(const Node& node) {
  std::string key(node.op->name);
  if (node.op->family == "random") key += "#" + std::to_string(node.op_id);
  for (ValueId v : node.inputs) key += "," + std::to_string(v.index);
  for (const auto& [name, value] : node.attributes) {
    key += ";" + name + "=";
    const auto* tensor = std::get_if<HostTensor>(&value);
    if (tensor != nullptr && tensor->bytes().size() > 64) {
      key += tensor->type().ToString() + Sha256Hex(tensor->bytes());
    } else {
      key += AttributeText(value);
    }
  }
  return key;
}

Status Run(Module& module, PassContext& context) {
  int64_t merged = 0;
  for (Function& f : module.functions) {
    std::map<std::string, NodeId> seen;
    Replacements replacements(f);
    std::vector<bool> dead(static_cast<size_t>(f.node_count()), false);
    std::vector<bool> result = ResultValues(f);
    for (NodeId id : f.order()) {
      Node& node = f.node(id);
      for (ValueId& v : node.inputs) v = replacements.Resolve(v);
      if (node.op->has_side_effects || node.op->name == "copy") continue;
      const auto [it, fresh] = seen.emplace(KeyOf(node), id);
      if (fresh) continue;
      const Node& first = f.node(it->second);
      // Two results stay two buffers.
      bool both_results = false;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        both_results = both_results || (result[static_cast<size_t>(node.outputs[i].index)] &&
                                        result[static_cast<size_t>(first.outputs[i].index)]);
      }
      if (both_results) continue;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        replacements.Add(node.outputs[i], first.outputs[i]);
        if (result[static_cast<size_t>(node.outputs[i].index)]) {
          result[static_cast<size_t>(first.outputs[i].index)] = true;
        }
      }
      dead[static_cast<size_t>(id.index)] = true;
      ++merged;
    }
    f.RemoveNodes(dead);
    replacements.Apply(f);
  }
  context.statistics["nodes merged"] = merged;
  context.changed = merged > 0;
  return Status::Ok();
}

}  // namespace

Pass CsePass() {
  return {.name = "cse", .summary = "merges nodes that compute the same value", .run = Run};
}

}  // namespace hyper::ir
