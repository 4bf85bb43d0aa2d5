#include "partition/propagate.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include <fmt/format.h>

namespace hyper::partition {
namespace {

using Axes = std::vector<AxisId>;

bool IsPrefix(const Axes& shorter, const Axes& longer) {
  return shorter.size() <= longer.size() &&
         std::equal(shorter.begin(), shorter.end(), longer.begin());
}

// Adds to what cuts a factor, where the axes go on from what is there and may cut it.
void Extend(const NodeFactors& factors, Assignment* assignment, char letter, const Axes& axes) {
  for (size_t n = axes.size(); n > 0; --n) {
    const Axes head(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(n));
    const auto at = assignment->find(letter);
    if (at != assignment->end() && !IsPrefix(at->second, head)) continue;
    if (at != assignment->end() && at->second.size() == head.size()) return;
    if (!factors.CanCut(*assignment, letter, head)) continue;
    (*assignment)[letter] = head;
    return;
  }
}

// Where each value lies: where it was made, and whatever it was moved to since.
class Places {
 public:
  Places(const Mesh& mesh, const ir::Function& function, const LinkCost& link)
      : mesh_(mesh), function_(function), link_(link), places_(function.value_count()) {}

  void Make(ir::ValueId v, Layout layout) { places_[Index(v)] = {std::move(layout)}; }
  std::span<const Layout> Of(ir::ValueId v) const { return places_[Index(v)]; }

  // The cheapest way to `to` from any of them.
  Result<std::vector<Step>> PathTo(ir::ValueId v, const Layout& to) const {
    std::vector<Step> best;
    double least = std::numeric_limits<double>::infinity();
    const ir::TensorType& type = function_.type(v);
    for (const Layout& from : Of(v)) {
      if (from == to) return std::vector<Step>{};
      HYPER_ASSIGN_OR_RETURN(
          std::vector<Step> path,
          CheapestPath(mesh_, type.dims, ir::DTypeBytes(type.dtype), from, to, link_));
      const double seconds = Seconds(path);
      if (seconds >= least) continue;
      least = seconds;
      best = std::move(path);
    }
    return best;
  }

  void Add(ir::ValueId v, std::span<const Step> path) {
    for (const Step& step : path) places_[Index(v)].push_back(step.after);
  }

  static double Seconds(std::span<const Step> path) {
    double sum = 0;
    for (const Step& step : path) sum += step.seconds;
    return sum;
  }

 private:
  static size_t Index(ir::ValueId v) { return static_cast<size_t>(v.index); }

  const Mesh& mesh_;
  const ir::Function& function_;
  const LinkCost link_;
  std::vector<std::vector<Layout>> places_;
};

std::string NameOf(const ir::Function& function, ir::ValueId v) {
  const std::string& name = function.value(v).name;
  return name.empty() ? fmt::format("%{}", v.index) : fmt::format("'{}'", name);
}

class Propagation {
 public:
  Propagation(const Mesh& mesh, const ir::Function& function, const CostModel& cost)
      : mesh_(mesh), function_(function), cost_(cost), places_(mesh, function, cost.link) {
    const auto values = static_cast<size_t>(function.value_count());
    for (size_t v = 0; v < values; ++v) {
      const int rank = function.type({static_cast<int32_t>(v)}).rank();
      hints_.push_back(Layout::Replicated(mesh, rank));
    }
    given_.resize(values);
    why_.assign(values, "no cut reaches it");
    layouts_.made = hints_;
    layouts_.assignments.resize(static_cast<size_t>(function.node_count()));
    for (const ir::NodeId id : function.order()) {
      factors_.emplace(id.index, NodeFactors(mesh, function, function.node(id)));
    }
  }

  Status Give(const Seed& seed) {
    const Status fits = CheckLayout(mesh_, seed.layout, function_.type(seed.value).dims);
    if (!fits.ok()) return fits.WithContext(NameOf(function_, seed.value));
    const auto v = static_cast<size_t>(seed.value.index);
    hints_[v] = seed.layout;
    given_[v] = true;
    why_[v] = seed.why;
    return Status::Ok();
  }

  void SpreadHints() {
    std::vector<ir::NodeId> order = function_.order();
    // Each round refines at least one hint, and there are only so many axes to add.
    for (bool changed = true; changed;) {
      changed = false;
      for (const ir::NodeId id : order) changed |= SpreadThrough(id);
      std::reverse(order.begin(), order.end());
    }
  }

  Result<FunctionLayouts> Choose() {
    for (const ir::Argument& argument : function_.arguments()) {
      Make(argument.value, hints_[Index(argument.value)]);
    }
    for (const ir::NodeId id : function_.order()) {
      HYPER_ASSIGN_OR_RETURN(const Assignment chosen, Cheapest(id));
      layouts_.assignments[static_cast<size_t>(id.index)] = chosen;
      const ir::Node& node = function_.node(id);
      const NodeFactors& factors = factors_.at(id.index);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        HYPER_ASSIGN_OR_RETURN(
            const std::vector<Step> path,
            places_.PathTo(node.inputs[i], factors.InputLayout(chosen, static_cast<int>(i))));
        places_.Add(node.inputs[i], path);
      }
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        Make(node.outputs[o], factors.OutputLayout(chosen, static_cast<int>(o)));
      }
    }
    layouts_.why = why_;
    return std::move(layouts_);
  }

 private:
  static size_t Index(ir::ValueId v) { return static_cast<size_t>(v.index); }

  void Make(ir::ValueId v, const Layout& layout) {
    layouts_.made[Index(v)] = layout;
    places_.Make(v, layout);
  }

  // What the hints of operands and results say about the factors of a node, added to `assignment`.
  Assignment Merged(ir::NodeId id, Assignment assignment) const {
    const ir::Node& node = function_.node(id);
    const NodeFactors& factors = factors_.at(id.index);
    struct Voice {
      bool given;
      int64_t bytes;
      size_t order;
      ir::ValueId value;
      const std::string* letters;
    };
    std::vector<Voice> voices;
    const auto add = [&](ir::ValueId v, const std::string& letters) {
      voices.push_back({given_[Index(v)], function_.type(v).bytes(), voices.size(), v, &letters});
    };
    for (int i = 0; i < factors.inputs(); ++i) {
      add(node.inputs[static_cast<size_t>(i)], factors.input(i));
    }
    for (int o = 0; o < factors.outputs(); ++o) {
      add(node.outputs[static_cast<size_t>(o)], factors.output(o));
    }
    std::sort(voices.begin(), voices.end(), [](const Voice& a, const Voice& b) {
      return std::tuple(!a.given, -a.bytes, a.order) < std::tuple(!b.given, -b.bytes, b.order);
    });
    for (const Voice& voice : voices) {
      const Layout& hint = hints_[Index(voice.value)];
      for (size_t d = 0; d < hint.dims.size(); ++d) {
        if (!hint.dims[d].empty()) Extend(factors, &assignment, (*voice.letters)[d], hint.dims[d]);
      }
    }
    return assignment;
  }

  bool SpreadThrough(ir::NodeId id) {
    const ir::Node& node = function_.node(id);
    const NodeFactors& factors = factors_.at(id.index);
    const Assignment assignment = Merged(id, {});
    if (assignment.empty()) return false;
    bool changed = false;
    for (int i = 0; i < factors.inputs(); ++i) {
      changed |=
          Refine(node.inputs[static_cast<size_t>(i)], factors.InputLayout(assignment, i), node);
    }
    for (int o = 0; o < factors.outputs(); ++o) {
      changed |=
          Refine(node.outputs[static_cast<size_t>(o)], factors.OutputLayout(assignment, o), node);
    }
    return changed;
  }

  bool Refine(ir::ValueId v, const Layout& proposed, const ir::Node& node) {
    if (given_[Index(v)]) return false;
    Layout& hint = hints_[Index(v)];
    bool changed = false;
    for (size_t d = 0; d < hint.dims.size(); ++d) {
      const Axes& axes = proposed.dims[d];
      if (axes.size() <= hint.dims[d].size() || !IsPrefix(hint.dims[d], axes)) continue;
      const bool free = std::all_of(axes.begin() + static_cast<std::ptrdiff_t>(hint.dims[d].size()),
                                    axes.end(), [&](AxisId axis) { return hint.DimOf(axis) < 0; });
      if (!free) continue;
      hint.dims[d] = axes;
      changed = true;
    }
    if (changed)
      why_[Index(v)] = fmt::format("follows through {} '{}'", node.op->name, node.source);
    return changed;
  }

  Result<double> Seconds(ir::NodeId id, const Assignment& assignment) const {
    const ir::Node& node = function_.node(id);
    const NodeFactors& factors = factors_.at(id.index);
    double seconds = 0;
    std::vector<ir::TensorType> in, out;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ir::ValueId v = node.inputs[i];
      HYPER_ASSIGN_OR_RETURN(
          const std::vector<Step> path,
          places_.PathTo(v, factors.InputLayout(assignment, static_cast<int>(i))));
      seconds += Places::Seconds(path);
      in.push_back(function_.type(v));
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ir::ValueId v = node.outputs[o];
      const ir::TensorType& type = function_.type(v);
      HYPER_ASSIGN_OR_RETURN(const std::vector<Step> path,
                             CheapestPath(mesh_, type.dims, ir::DTypeBytes(type.dtype),
                                          factors.OutputLayout(assignment, static_cast<int>(o)),
                                          hints_[Index(v)], cost_.link));
      seconds += Places::Seconds(path);
      out.push_back(type);
    }
    const ir::OpCost work = node.op->cost(in, out, node.attributes);
    Axes used;
    for (const auto& [letter, axes] : assignment) used.insert(used.end(), axes.begin(), axes.end());
    return seconds +
           std::max(work.flops / cost_.flops_per_second, work.bytes / cost_.bytes_per_second) /
               static_cast<double>(mesh_.Size(used));
  }

  // Where one operand or result comes first, the rest as it then fits.
  Assignment Led(ir::NodeId id, const Layout& layout, const std::string& letters) const {
    Assignment assignment;
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      if (!layout.dims[d].empty()) {
        Extend(factors_.at(id.index), &assignment, letters[d], layout.dims[d]);
      }
    }
    return Merged(id, std::move(assignment));
  }

  Result<Assignment> Cheapest(ir::NodeId id) const {
    const ir::Node& node = function_.node(id);
    const NodeFactors& factors = factors_.at(id.index);
    std::vector<Assignment> candidates = {Merged(id, {})};
    for (int i = 0; i < factors.inputs(); ++i) {
      for (const Layout& place : places_.Of(node.inputs[static_cast<size_t>(i)])) {
        candidates.push_back(Led(id, place, factors.input(i)));
      }
    }
    for (int o = 0; o < factors.outputs(); ++o) {
      const Layout& hint = hints_[Index(node.outputs[static_cast<size_t>(o)])];
      candidates.push_back(Led(id, hint, factors.output(o)));
    }
    // One factor less: where a cut costs more than it saves.
    for (size_t c = 0, led = candidates.size(); c < led; ++c) {
      for (const auto& [letter, axes] : Assignment(candidates[c])) {
        candidates.push_back(candidates[c]);
        candidates.back().erase(letter);
      }
    }
    candidates.push_back({});
    Assignment best;
    double least = std::numeric_limits<double>::infinity();
    std::set<Assignment> tried;
    for (const Assignment& candidate : candidates) {
      if (!tried.insert(candidate).second) continue;
      HYPER_ASSIGN_OR_RETURN(const double seconds, Seconds(id, candidate));
      if (seconds < least) {
        least = seconds;
        best = candidate;
      }
    }
    return best;
  }

  const Mesh& mesh_;
  const ir::Function& function_;
  const CostModel cost_;
  std::map<int32_t, NodeFactors> factors_;
  std::vector<Layout> hints_;
  std::vector<bool> given_;
  std::vector<std::string> why_;
  FunctionLayouts layouts_;
  Places places_;
};

}  // namespace

Result<FunctionLayouts> Propagate(const Mesh& mesh, const ir::Function& function,
                                  std::span<const Seed> seeds, const CostModel& cost) {
  Propagation propagation(mesh, function, cost);
  for (const Seed& seed : seeds) HYPER_RETURN_IF_ERROR(propagation.Give(seed));
  propagation.SpreadHints();
  return propagation.Choose();
}

Result<std::vector<PlannedStep>> PlanSteps(const Mesh& mesh, const ir::Function& function,
                                           const FunctionLayouts& layouts, const CostModel& cost) {
  std::vector<PlannedStep> plan;
  Places places(mesh, function, cost.link);
  const auto make = [&](ir::ValueId v) {
    places.Make(v, layouts.made[static_cast<size_t>(v.index)]);
  };
  const auto move = [&](ir::ValueId v, const Layout& to, ir::NodeId reader) -> Status {
    HYPER_ASSIGN_OR_RETURN(std::vector<Step> path, places.PathTo(v, to));
    places.Add(v, path);
    for (Step& step : path) plan.push_back({v, reader, std::move(step)});
    return Status::Ok();
  };
  for (const ir::Argument& argument : function.arguments()) make(argument.value);
  for (const ir::NodeId id : function.order()) {
    const ir::Node& node = function.node(id);
    const NodeFactors factors(mesh, function, node);
    const Assignment& assignment = layouts.assignments[static_cast<size_t>(id.index)];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      HYPER_RETURN_IF_ERROR(
          move(node.inputs[i], factors.InputLayout(assignment, static_cast<int>(i)), id));
    }
    for (const ir::ValueId v : node.outputs) make(v);
  }
  for (const ir::FunctionResult& result : function.results()) {
    const Layout& made = layouts.made[static_cast<size_t>(result.value.index)];
    Layout to = Layout::Replicated(mesh, static_cast<int>(made.dims.size()));
    if (result.alias_argument >= 0) {
      const ir::Argument& argument =
          function.arguments()[static_cast<size_t>(result.alias_argument)];
      to = layouts.made[static_cast<size_t>(argument.value.index)];
    }
    HYPER_RETURN_IF_ERROR(move(result.value, to, {}));
  }
  return plan;
}

}  // namespace hyper::partition
