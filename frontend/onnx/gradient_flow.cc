#include "frontend/onnx/gradient_flow.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontend/onnx/functions.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::NodeProto;

// Why no gradient passes a node, or empty.
std::string BlocksGradient(const NodeProto& node) {
  const ImportTarget* target = ImportTargets().Find(NormalDomain(node.domain()), node.op_type());
  if (target != nullptr && !target->no_gradient.empty()) return std::string(target->no_gradient);
  if (node.op_type() == "Cast" && NormalDomain(node.domain()).empty()) {
    for (const auto& a : node.attribute()) {
      if (a.name() != "to") continue;
      const auto dtype = DTypeFromOnnx(static_cast<int>(a.i()));
      if (dtype.has_value() && !ir::IsFloat(*dtype)) return "integers have no derivative";
    }
  }
  return {};
}

std::string Blocker(const NodeProto& node, const std::string& why) {
  return fmt::format("'{}' ({}): {}", NodeTitle(node), node.op_type(), why);
}

}  // namespace

GradientFlow::GradientFlow(const LoadedModel& model, const std::set<std::string>& losses)
    : in_loss_(Ancestors(model, {losses.begin(), losses.end()})), flows_(losses) {
  const auto& nodes = model.graph().node();
  for (int i = nodes.size() - 1; i >= 0; --i) {
    const NodeProto& node = nodes[i];
    const auto any = [&](const auto& names) {
      return std::any_of(node.output().begin(), node.output().end(),
                         [&](const std::string& o) { return names.count(o) > 0; });
    };
    if (!any(in_loss_)) continue;
    const std::string why = BlocksGradient(node);
    const std::vector<std::string> read = NamesRead(node);
    if (why.empty() && any(flows_)) {
      flows_.insert(read.begin(), read.end());
      continue;
    }
    std::string blocker;
    if (!why.empty()) {
      blocker = Blocker(node, why);
    } else {
      for (const std::string& o : node.output()) {
        if (const auto it = blockers_.find(o); it != blockers_.end()) blocker = it->second;
      }
    }
    for (const std::string& name : read) blockers_[name] = blocker;
  }
}

bool GradientFlow::ReachesLoss(const std::vector<Use>& uses) const {
  return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
    return std::any_of(use.outer().output().begin(), use.outer().output().end(),
                       [&](const std::string& o) { return in_loss_.count(o) > 0; });
  });
}

std::string GradientFlow::CutBy(const std::vector<Use>& uses) const {
  std::string blocker;
  for (const Use& use : uses) {
    const std::string why = BlocksGradient(*use.node);
    for (const std::string& o : use.outer().output()) {
      if (why.empty() && flows_.count(o) > 0) return {};
      if (in_loss_.count(o) == 0 || !blocker.empty()) continue;
      if (!why.empty()) {
        blocker = Blocker(*use.node, why);
      } else if (const auto it = blockers_.find(o); it != blockers_.end()) {
        blocker = it->second;
      }
    }
  }
  return blocker;
}

}  // namespace hyper::onnx_frontend
