#include "partition/factors.h"

#include <algorithm>
#include <numeric>

#include "base/status.h"

namespace hyper::partition {
namespace {

bool Has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

// Letters of their own for every dim, none of which may be cut.
ir::ShardingFactors Whole(std::span<const ir::TensorType> in, std::span<const ir::TensorType> out) {
  ir::ShardingFactors rule;
  char next = '!';
  const auto add = [&](std::span<const ir::TensorType> types, std::vector<std::string>* lists) {
    for (const ir::TensorType& type : types) {
      std::string& letters = lists->emplace_back();
      for (int d = 0; d < type.rank(); ++d) letters += next++;
      rule.replicated += letters;
    }
  };
  add(in, &rule.inputs);
  add(out, &rule.outputs);
  return rule;
}

}  // namespace

Partial PartialFromName(std::string_view name) {
  for (const Partial partial :
       {Partial::kSum, Partial::kMax, Partial::kMin, Partial::kProd, Partial::kAnd, Partial::kOr}) {
    if (PartialName(partial) == name) return partial;
  }
  HYPER_CHECK(false, "a sharding rule reduces by '" + std::string(name) + "'");
  return Partial::kNone;
}

NodeFactors::NodeFactors(const Mesh& mesh, const ir::Function& function, const ir::Node& node)
    : mesh_(&mesh) {
  std::vector<ir::TensorType> in, out;
  for (const ir::ValueId v : node.inputs) in.push_back(function.type(v));
  for (const ir::ValueId v : node.outputs) out.push_back(function.type(v));
  const auto* rule = std::get_if<ir::ShardingFunction>(&node.op->sharding);
  rule_ = rule == nullptr ? Whole(in, out) : (*rule)(in, out, node.attributes);
  const auto count = [&](const std::vector<std::string>& lists,
                         const std::vector<ir::TensorType>& types) {
    for (size_t i = 0; i < lists.size(); ++i) {
      for (size_t d = 0; d < lists[i].size(); ++d) {
        const char letter = lists[i][d];
        if (!Has(letters_, letter)) letters_ += letter;
        int64_t& divisor = divisors_[letter];
        divisor = std::gcd(divisor, types[i].dims[d]);
      }
    }
  };
  count(rule_.inputs, in);
  count(rule_.outputs, out);
  // Extent 0 has no parts.
  for (auto& [letter, divisor] : divisors_) {
    if (divisor == 0 || Has(rule_.replicated, letter)) divisor = 1;
  }
}

bool NodeFactors::IsReduced(char letter) const { return Has(rule_.reduced, letter); }

int64_t NodeFactors::Divisor(char letter) const { return divisors_.at(letter); }

bool NodeFactors::CanCut(const Assignment& assignment, char letter,
                         const std::vector<AxisId>& axes) const {
  for (const auto& [other, used] : assignment) {
    if (other == letter) continue;
    for (const AxisId axis : used) {
      if (std::find(axes.begin(), axes.end(), axis) != axes.end()) return false;
    }
  }
  return Divisor(letter) % mesh_->Size(axes) == 0;
}

Layout NodeFactors::LayoutOf(const Assignment& assignment, const std::string& letters) const {
  Layout layout = Layout::Replicated(*mesh_, static_cast<int>(letters.size()));
  for (size_t d = 0; d < letters.size(); ++d) {
    const auto at = assignment.find(letters[d]);
    if (at != assignment.end()) layout.dims[d] = at->second;
  }
  return layout;
}

Layout NodeFactors::InputLayout(const Assignment& assignment, int input) const {
  return LayoutOf(assignment, rule_.inputs[static_cast<size_t>(input)]);
}

Layout NodeFactors::OutputLayout(const Assignment& assignment, int output) const {
  const std::string& letters = rule_.outputs[static_cast<size_t>(output)];
  Layout layout = LayoutOf(assignment, letters);
  for (const auto& [letter, axes] : assignment) {
    if (!IsReduced(letter) || Has(letters, letter)) continue;
    for (const AxisId axis : axes) {
      layout.partial[static_cast<size_t>(axis)] = PartialFromName(rule_.reduction);
    }
  }
  return layout;
}

}  // namespace hyper::partition
