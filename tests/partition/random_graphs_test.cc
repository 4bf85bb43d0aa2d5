// Random training graphs under random layouts: the ranks' results are those of the whole graph, and
// a collective that is left out is seen.
#include <cmath>
#include <cstdlib>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/training.h"
#include "tests/partition/virtual_run.h"

namespace hyper::partition {
namespace {

using ir::Dims;
using ir::DType;
using ir::ScalarOp;
using ir::ValueId;

// Extents with many divisors.
constexpr int64_t kExtents[] = {4, 8, 12, 16};

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed), builder_(&function_) {
    ValueId x = Argument({Extent(), Extent(), Extent()});
    x = builder_.Dot("abk,kn->abn", x, Argument({function_.type(x).dims[2], Extent()}));
    for (size_t ops = 3 + Below(5); ops > 0; --ops) x = Grow(x);
    const ValueId square = builder_.Binary(ScalarOp::kMul, x, x);
    Dims all;
    for (int d = 0; d < function_.type(square).rank(); ++d) all.push_back(d);
    const ValueId loss = builder_.Reduce("sum", square, all);
    const std::vector<ValueId> wanted = arguments_;
    const ValueId one = Argument({});
    const auto gradients = ir::AppendGradients(function_, {{loss, one}}, wanted, nullptr);
    EXPECT_TRUE(gradients.ok()) << gradients.status().ToString();
    function_.AddResult(loss, "loss");
    for (size_t i = 0; i < wanted.size(); ++i) {
      // Some gradients lie where their parameter does, as accumulators do.
      if (!gradients->at(i).valid()) continue;
      const int alias = Below(2) == 0 ? -1 : function_.ArgumentIndex(wanted[i]);
      function_.AddResult(gradients->at(i), fmt::format("d{}", i), alias);
    }
    for (const ValueId v : arguments_) {
      Local& values = values_.emplace_back(Local{function_.type(v).dims, {}});
      const size_t n = Count(values.extents);
      for (size_t k = 0; k < n; ++k) {
        values.values.push_back(static_cast<double>(Below(2001)) / 1000 - 1);
      }
    }
  }

  const ir::Function& function() const { return function_; }
  const std::vector<Local>& values() const { return values_; }

  std::vector<Seed> Seeds(const Mesh& mesh) {
    std::vector<Seed> seeds;
    std::set<ValueId> taken;
    for (size_t n = 2 + Below(4); n > 0; --n) {
      // Mostly arguments, as in strategies.
      const ValueId v =
          Below(4) > 0 ? arguments_[Below(arguments_.size())] : forward_[Below(forward_.size())];
      if (!taken.insert(v).second) continue;
      const Dims& dims = function_.type(v).dims;
      Layout layout = Layout::Replicated(mesh, static_cast<int>(dims.size()));
      for (AxisId axis = 0; axis < mesh.rank_of_mesh() && !dims.empty(); ++axis) {
        if (Below(5) == 0) continue;
        for (int attempt = 0; attempt < 3; ++attempt) {
          Layout next = layout;
          next.dims[Below(dims.size())].push_back(axis);
          if (!CheckLayout(mesh, next, dims).ok()) continue;
          layout = next;
          break;
        }
      }
      seeds.push_back({v, layout, "seed"});
    }
    return seeds;
  }

  size_t Below(size_t n) { return random_() % n; }

 private:
  int64_t Extent() { return kExtents[Below(std::size(kExtents))]; }

  ValueId Argument(Dims dims) {
    const ValueId v =
        function_.AddArgument({DType::kF64, std::move(dims)}, ir::ArgumentKind::kParameter,
                              fmt::format("p{}", arguments_.size()));
    arguments_.push_back(v);
    return v;
  }

  ValueId Grow(ValueId x) {
    ValueId y = Op(x);
    // Values stay near 1, so that sums of products do not run away.
    y = builder_.Unary(ScalarOp::kTanh, y);
    forward_.push_back(y);
    return y;
  }

  ValueId Op(ValueId x) {
    const Dims dims = function_.type(x).dims;
    const int64_t last = dims.back();
    switch (Below(9)) {
      case 0:
      case 1: {  // a linear layer
        const ValueId w = Argument({last, Extent()});
        return builder_.Dot("abk,kn->abn", x, w);
      }
      case 2:  // scores of attention, and what they weigh
        return builder_.Dot("aij,ajk->aik", builder_.Dot("aik,ajk->aij", x, x), x);
      case 3: return builder_.Transpose(x, {1, 0, 2});
      case 4: {  // heads
        // Norms and softmax over one element have no gradient: a fault in it would not be seen.
        if (last % 2 != 0 || last < 4) return x;
        const ValueId split = builder_.Reshape(x, {dims[0], dims[1], 2, last / 2});
        const ValueId moved = builder_.Transpose(split, {0, 2, 1, 3});
        return builder_.Reshape(moved, {dims[0] * 2, dims[1], last / 2});
      }
      case 5: {
        const ValueId bias = Argument({last});
        return builder_.Binary(ScalarOp::kAdd, x, builder_.Broadcast(bias, dims, {2}));
      }
      case 6: return builder_.Add1("softmax", {x}, {{"axis", int64_t{2}}});
      case 7: {
        const ValueId scale = Argument({last});
        const ValueId bias = Argument({last});
        return builder_.Add("layer_norm", {x, scale, bias},
                            {{"axis", int64_t{2}}, {"epsilon", 1e-3}})[0];
      }
      default: {  // a convolution along dim 2 with channels in dim 1
        const ValueId w = Argument({Extent(), dims[1], 3});
        return builder_.Add1("conv", {x, w},
                             {{"strides", Dims{1}},
                              {"pads_low", Dims{1}},
                              {"pads_high", Dims{1}},
                              {"dilations", Dims{1}},
                              {"groups", int64_t{1}}});
      }
    }
  }

  std::mt19937 random_;
  ir::Function function_{"step"};
  ir::Builder builder_;
  std::vector<ValueId> arguments_, forward_;
  std::vector<Local> values_;
};

// Relative to the largest element of each result.
double Difference(const std::vector<Local>& a, const std::vector<Local>& b) {
  double error = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    EXPECT_EQ(a[i].extents, b[i].extents);
    double largest = 1e-12;
    for (const double v : b[i].values) largest = std::max(largest, std::abs(v));
    for (size_t k = 0; k < b[i].values.size(); ++k) {
      const double d = std::abs(a[i].values[k] - b[i].values[k]);
      error = std::isfinite(d) ? std::max(error, d / largest) : INFINITY;
    }
  }
  return error;
}

bool CutsAContraction(const ir::Function& function, const FunctionLayouts& layouts) {
  for (const ir::NodeId id : function.order()) {
    const ir::Node& node = function.node(id);
    const bool contraction = node.op->family == "contraction" || node.op->family == "convolution";
    if (contraction && !layouts.assignments[static_cast<size_t>(id.index)].empty()) return true;
  }
  return false;
}

TEST(RandomGraphs, ShardedEqualsWhole) {
  const std::vector<std::vector<MeshAxis>> meshes = {
      {{"a", 2}}, {{"a", 4}}, {{"a", 2}, {"b", 2}}, {{"a", 2}, {"b", 3}}, {{"a", 3}}};
  // HYPER_RANDOM_GRAPHS: how many pairs, HYPER_RANDOM_SEED: the first seed.
  const char* wanted = std::getenv("HYPER_RANDOM_GRAPHS");
  const char* first = std::getenv("HYPER_RANDOM_SEED");
  const uint32_t pairs = wanted != nullptr ? static_cast<uint32_t>(std::atoi(wanted)) : 150;
  const uint32_t begin = first != nullptr ? static_cast<uint32_t>(std::atoi(first)) : 1;
  int64_t cut = 0, collectives = 0, dropped = 0, seen = 0;
  double worst = 0;
  for (uint32_t seed = begin; seed < begin + pairs; ++seed) {
    SCOPED_TRACE(fmt::format("HYPER_RANDOM_SEED={} HYPER_RANDOM_GRAPHS=1", seed));
    RandomGraph graph(seed);
    const Mesh mesh = MakeMesh(meshes[graph.Below(meshes.size())]);
    const std::vector<Seed> seeds = graph.Seeds(mesh);
    // Work is dear here, as it is for tensors of real size: else nothing this small would be cut.
    const CostModel cost{.flops_per_second = 1e5, .bytes_per_second = 1e6};
    const auto layouts = Propagate(mesh, graph.function(), seeds, cost);
    ASSERT_TRUE(layouts.ok()) << layouts.status().ToString();
    for (const Seed& s : seeds) {
      if (graph.function().ArgumentIndex(s.value) < 0) continue;
      EXPECT_EQ(layouts->made[static_cast<size_t>(s.value.index)], s.layout);
    }
    const std::vector<Local> whole = RunWhole(graph.function(), graph.values());
    const VirtualRun run = RunOnVirtualRanks(mesh, graph.function(), *layouts, graph.values());
    const double error = Difference(run.results, whole);
    worst = std::max(worst, error);
    ASSERT_LE(error, 1e-9) << mesh.ToString();
    cut += CutsAContraction(graph.function(), *layouts);
    collectives += run.collectives;
    if (run.collectives == 0) continue;
    const auto skip = static_cast<int64_t>(graph.Below(static_cast<size_t>(run.collectives)));
    const auto plan = PlanSteps(mesh, graph.function(), *layouts);
    int64_t at = -1;
    StepKind kind = StepKind::kSlice;
    for (const PlannedStep& p : *plan) {
      if (p.step.payload_bytes > 0 && ++at == skip) kind = p.step.kind;
    }
    if (kind != StepKind::kAllReduce && kind != StepKind::kReduceScatter) continue;
    ++dropped;
    const VirtualRun faulty =
        RunOnVirtualRanks(mesh, graph.function(), *layouts, graph.values(), skip);
    const double fault = Difference(faulty.results, whole);
    seen += fault > 1e-9;
    if (fault <= 1e-9) fmt::print("unseen: seed {}, step {}\n", seed, skip);
  }
  fmt::print("measured random_graphs_error {:.2e}\nfigure random_graphs {}\n", worst, pairs);
  fmt::print("figure random_graphs_with_cut_contractions {}\n", cut);
  fmt::print("figure random_graphs_collectives {}\n", collectives);
  fmt::print("figure random_graphs_dropped {}\nfigure random_graphs_dropped_seen {}\n", dropped,
             seen);
  EXPECT_GE(cut, 0.8 * pairs);
  // A share can be zero by itself (a saturated softmax): hardly ever.
  EXPECT_GE(seen, 0.99 * dropped);
}

}  // namespace
}  // namespace hyper::partition
