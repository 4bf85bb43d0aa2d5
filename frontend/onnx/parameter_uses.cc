#include "frontend/onnx/parameter_uses.h"

#include <algorithm>
#include <set>

#include "frontend/onnx/tensor_data.h"

namespace hyper::onnx_frontend {
namespace {

class Visitor {
 public:
  Visitor(const onnx::NodeProto& owner,
          const std::function<void(const std::string&, const Use&)>& tell,
          std::vector<std::string>* weights)
      : owner_(owner), tell_(tell), weights_(weights) {}

  // `own`: names that enclosing subgraphs define.
  void Visit(const onnx::NodeProto& node, const std::set<std::string>& own) {
    for (const onnx::AttributeProto& a : node.attribute()) {
      if (a.has_g()) Visit(a.g(), own);
      for (const onnx::GraphProto& graph : a.graphs()) Visit(graph, own);
    }
  }

 private:
  void Visit(const onnx::GraphProto& graph, std::set<std::string> own) {
    for (const auto& input : graph.input()) own.insert(input.name());
    for (const onnx::TensorProto& tensor : graph.initializer()) {
      own.insert(tensor.name());
      const auto dtype = DTypeFromOnnx(tensor.data_type());
      const bool several =
          std::any_of(tensor.dims().begin(), tensor.dims().end(), [](int64_t d) { return d > 1; });
      if (dtype.has_value() && ir::IsFloat(*dtype) && several) weights_->push_back(tensor.name());
    }
    for (const onnx::NodeProto& node : graph.node()) {
      own.insert(node.output().begin(), node.output().end());
    }
    const auto use = [&](const std::string& name, const onnx::NodeProto* reader, int slot) {
      if (!name.empty() && own.count(name) == 0) tell_(name, {reader, slot, &owner_});
    };
    for (const onnx::NodeProto& node : graph.node()) {
      for (int i = 0; i < node.input_size(); ++i) use(node.input(i), &node, i);
      Visit(node, own);
    }
    for (const auto& output : graph.output()) use(output.name(), &owner_, -1);
  }

  const onnx::NodeProto& owner_;
  const std::function<void(const std::string&, const Use&)>& tell_;
  std::vector<std::string>* weights_;
};

}  // namespace

bool PassesThrough(const onnx::NodeProto& node) {
  static const std::set<std::string> ops = {"Identity", "Transpose", "Reshape",
                                            "Squeeze",  "Unsqueeze", "Flatten",
                                            "Cast",     "Expand",    "CastLike"};
  return ops.count(node.op_type()) > 0;
}

void SubgraphUses(const onnx::NodeProto& owner,
                  const std::function<void(const std::string& name, const Use& use)>& tell,
                  std::vector<std::string>* weights) {
  Visitor(owner, tell, weights).Visit(owner, {});
}

}  // namespace hyper::onnx_frontend
