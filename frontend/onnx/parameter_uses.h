// Who reads a tensor of the file, subgraphs included (part of import.h).
// Thread safety: pure functions of their arguments.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace hyper::onnx_frontend {

struct Use {
  const onnx::NodeProto* node = nullptr;
  int slot = 0;                            // -1: as the output of a subgraph
  const onnx::NodeProto* owner = nullptr;  // the node of the graph whose subgraphs hold `node`

  bool inner() const { return owner != nullptr; }
  const onnx::NodeProto& outer() const { return inner() ? *owner : *node; }
};

using UsesByName = std::map<std::string, std::vector<Use>>;

// True when a node only lays its operand out anew or casts it.
bool PassesThrough(const onnx::NodeProto& node);

// Tells every use of an outer name in the subgraphs of `owner`, nested ones included. `weights`
// receives the names of float initializers of several elements that the subgraphs define.
void SubgraphUses(const onnx::NodeProto& owner,
                  const std::function<void(const std::string& name, const Use& use)>& tell,
                  std::vector<std::string>* weights);

}  // namespace hyper::onnx_frontend
