#include "tests/partition/virtual_run.h"

#include <algorithm>

namespace hyper::partition {
namespace {

using Ranks = std::vector<Local>;  // one tensor per rank

class Runner {
 public:
  Runner(const Mesh& mesh, const ir::Function& function, const FunctionLayouts& layouts,
         int64_t skip)
      : mesh_(mesh), function_(function), layouts_(layouts), skip_(skip) {
    auto plan = PlanSteps(mesh, function, layouts);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    plan_ = std::move(plan).value();
  }

  void Give(ir::ValueId v, const Local& whole) {
    Ranks ranks;
    for (int64_t r = 0; r < mesh_.ranks(); ++r) {
      ranks.push_back(Cut(whole, SliceOf(mesh_, Made(v), whole.extents, r)));
    }
    here_[v][Made(v)] = std::move(ranks);
  }

  // Performs the steps that `reader` waits for.
  void Move(ir::NodeId reader) {
    for (; next_ < plan_.size() && plan_[next_].asked_for == reader; ++next_) {
      const auto& [value, asked_for, step] = plan_[next_];
      auto& places = here_.at(value);
      // The step starts from a place that leads to `after` in one move.
      const auto from = std::find_if(places.begin(), places.end(),
                                     [&](const auto& place) { return LeadsTo(place.first, step); });
      ASSERT_NE(from, places.end());
      const bool sends = step.payload_bytes > 0;
      Step done = step;
      if (sends && run_.collectives == skip_) done = Dropped(step);
      places[step.after] =
          Apply(mesh_, function_.type(value).dims, done, from->first, from->second);
      run_.collectives += sends;
    }
  }

  void Node(ir::NodeId id) {
    const ir::Node& node = function_.node(id);
    const NodeFactors factors(mesh_, function_, node);
    const Assignment& assignment = layouts_.assignments[static_cast<size_t>(id.index)];
    std::vector<const Ranks*> operands;
    std::vector<ir::TensorType> in, out;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Layout needed = factors.InputLayout(assignment, static_cast<int>(i));
      const auto& places = here_.at(node.inputs[i]);
      ASSERT_TRUE(places.contains(needed)) << node.op->name << " operand " << i;
      operands.push_back(&places.at(needed));
      const ir::TensorType& type = function_.type(node.inputs[i]);
      in.push_back({type.dtype, LocalExtents(mesh_, needed, type.dims)});
    }
    for (const ir::ValueId v : node.outputs) {
      const ir::TensorType& type = function_.type(v);
      out.push_back({type.dtype, LocalExtents(mesh_, Made(v), type.dims)});
    }
    const ir::Attributes attributes =
        node.op->localize ? node.op->localize(node.attributes, in, out) : node.attributes;
    for (int64_t r = 0; r < mesh_.ranks(); ++r) {
      std::vector<Local> mine;
      for (const Ranks* operand : operands) mine.push_back(operand->at(static_cast<size_t>(r)));
      const std::vector<Local> made = Run(*node.op, attributes, in, out, mine);
      for (size_t o = 0; o < made.size(); ++o) {
        here_[node.outputs[o]][Made(node.outputs[o])].push_back(made[o]);
      }
    }
  }

  VirtualRun Finish() {
    for (const ir::FunctionResult& result : function_.results()) {
      const ir::TensorType& type = function_.type(result.value);
      Layout to = Layout::Replicated(mesh_, type.rank());
      if (result.alias_argument >= 0) {
        to = Made(function_.arguments()[static_cast<size_t>(result.alias_argument)].value);
      }
      const Ranks& ranks = here_.at(result.value).at(to);
      Local whole{type.dims, std::vector<double>(Count(type.dims))};
      std::vector<bool> known(whole.values.size());
      for (int64_t r = 0; r < mesh_.ranks(); ++r) {
        const Local& mine = ranks[static_cast<size_t>(r)];
        ForEachOf(SliceOf(mesh_, to, type.dims, r), type.dims, [&](size_t flat, size_t k) {
          // A dropped collective may leave ranks that disagree: the last one is as good as any.
          whole.values[flat] = mine.values[k];
          known[flat] = true;
        });
      }
      EXPECT_TRUE(std::all_of(known.begin(), known.end(), [](bool k) { return k; }));
      run_.results.push_back(std::move(whole));
    }
    return std::move(run_);
  }

 private:
  const Layout& Made(ir::ValueId v) const { return layouts_.made[static_cast<size_t>(v.index)]; }

  // One move of the kind of `step` from `before` gives its layout.
  bool LeadsTo(const Layout& before, const Step& step) const {
    Layout after = before;
    const auto dim = static_cast<size_t>(std::max(step.dim, 0));
    const auto drop = [&](size_t d) {
      auto& axes = after.dims[d];
      const size_t n = step.axes.size();
      if (axes.size() < n || !std::equal(step.axes.begin(), step.axes.end(),
                                         axes.end() - static_cast<std::ptrdiff_t>(n))) {
        return false;
      }
      axes.resize(axes.size() - n);
      return true;
    };
    const auto add = [&](size_t d) {
      after.dims[d].insert(after.dims[d].end(), step.axes.begin(), step.axes.end());
    };
    const auto combine = [&] {
      for (const AxisId axis : step.axes) {
        Partial& partial = after.partial[static_cast<size_t>(axis)];
        if (partial != step.reduction) return false;
        partial = Partial::kNone;
      }
      return true;
    };
    switch (step.kind) {
      case StepKind::kSlice: add(dim); break;
      case StepKind::kAllGather:
        if (!drop(dim)) return false;
        break;
      case StepKind::kAllToAll:
        if (!drop(static_cast<size_t>(step.from_dim))) return false;
        add(dim);
        break;
      case StepKind::kAllReduce:
        if (!combine()) return false;
        break;
      case StepKind::kReduceScatter:
        if (!combine()) return false;
        add(dim);
        break;
      case StepKind::kPermute:
        // The same axes cut the same dims into as many parts.
        return before.partial == step.after.partial && before != step.after &&
               LocalExtents(mesh_, before, Extents(before)) ==
                   LocalExtents(mesh_, step.after, Extents(before));
    }
    return after == step.after;
  }
  std::vector<int64_t> Extents(const Layout& layout) const {
    return std::vector<int64_t>(layout.dims.size(), mesh_.ranks());
  }

  // The step as a group of one would do it: combining becomes keeping, the rest is done.
  static Step Dropped(Step step) {
    if (step.kind == StepKind::kAllReduce) step.axes.clear();
    if (step.kind == StepKind::kReduceScatter) step.kind = StepKind::kSlice;
    return step;
  }

  const Mesh& mesh_;
  const ir::Function& function_;
  const FunctionLayouts& layouts_;
  const int64_t skip_;
  std::vector<PlannedStep> plan_;
  size_t next_ = 0;
  std::map<ir::ValueId, std::map<Layout, Ranks>> here_;
  VirtualRun run_;
};

}  // namespace

VirtualRun RunOnVirtualRanks(const Mesh& mesh, const ir::Function& function,
                             const FunctionLayouts& layouts, const std::vector<Local>& arguments,
                             int64_t skip) {
  Runner runner(mesh, function, layouts, skip);
  for (size_t a = 0; a < arguments.size(); ++a) {
    runner.Give(function.arguments()[a].value, arguments[a]);
  }
  for (const ir::NodeId id : function.order()) {
    runner.Move(id);
    if (::testing::Test::HasFatalFailure()) return {};
    runner.Node(id);
    if (::testing::Test::HasFatalFailure()) return {};
  }
  runner.Move({});
  if (::testing::Test::HasFatalFailure()) return {};
  return runner.Finish();
}

std::vector<Local> RunWhole(const ir::Function& function, const std::vector<Local>& arguments) {
  std::vector<ir::HostTensor> tensors;
  for (size_t a = 0; a < arguments.size(); ++a) {
    tensors.push_back(FromLocal(function.type(function.arguments()[a].value).dtype, arguments[a]));
  }
  const auto results = ir::Evaluate(function, tensors);
  EXPECT_TRUE(results.ok()) << results.status().ToString();
  std::vector<Local> locals;
  for (const ir::HostTensor& t : *results) locals.push_back(ToLocal(t));
  return locals;
}

}  // namespace hyper::partition
