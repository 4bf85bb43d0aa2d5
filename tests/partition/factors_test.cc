// Every core op, every way in which its rule can cut it: the ranks' results are the slices of the
// whole result, or shares of them.
#include <cmath>
#include <map>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "partition/factors.h"
#include "tests/partition/virtual_ranks.h"

namespace hyper::partition {
namespace {

using ir::Attribute;
using ir::Attributes;
using ir::Dims;
using ir::DType;
using ir::HostTensor;
using ir::TensorType;

struct Input {
  TensorType type;
  int64_t bound = 1;  // of integers: [0, bound)
};

struct Case {
  std::string op;
  std::vector<Input> inputs;
  Attributes attributes;
};

Input F(Dims dims) { return {{DType::kF64, std::move(dims)}}; }
Input I(Dims dims, int64_t bound) { return {{DType::kI64, std::move(dims)}, bound}; }
Input B(Dims dims) { return {{DType::kBool, std::move(dims)}, 2}; }
Attribute Int(int64_t value) { return value; }
Attribute Text(const char* value) { return std::string(value); }

Attributes Window(int rank, Attributes more) {
  const auto n = static_cast<size_t>(rank);
  more.Set("strides", Dims(n, 1));
  more.Set("pads_low", Dims(n, 1));
  more.Set("pads_high", Dims(n, 0));
  more.Set("dilations", Dims(n, 1));
  return more;
}

ir::Expr Product() {
  ir::ExprBuilder e;
  return e.Build(e.Binary(ir::ScalarOp::kMul, e.Input(0, DType::kF64), e.Input(1, DType::kF64)));
}

std::vector<Case> Cases() {
  const Attributes axis1 = {{"axis", Int(1)}};
  const Attributes ignoring = {{"ignore_index", Int(2)}, {"has_ignore", true}};
  return {
      {"map", {F({4, 6}), F({4, 6})}, {{"expr", Product()}}},
      {"broadcast", {F({1, 6, 4})}, {{"shape", Dims{8, 2, 6, 4}}, {"dims", Dims{1, 2, 3}}}},
      {"reshape", {F({4, 6, 8})}, {{"shape", Dims{24, 2, 4}}}},
      {"reshape", {F({24, 8})}, {{"shape", Dims{4, 6, 8}}}},
      {"reshape", {F({1, 6, 1, 4})}, {{"shape", Dims{6, 4, 1}}}},
      {"transpose", {F({4, 6, 8})}, {{"perm", Dims{2, 0, 1}}}},
      {"slice",
       {F({4, 7, 8})},
       {{"starts", Dims{0, 1, 0}}, {"limits", Dims{4, 6, 8}}, {"strides", Dims{1, 2, 1}}}},
      {"reverse", {F({4, 6})}, {{"axes", Dims{1}}}},
      {"pad",
       {F({4, 6})},
       {{"mode", Text("reflect")},
        {"low", Dims{0, 1}},
        {"high", Dims{0, 2}},
        {"interior", Dims{0, 0}}}},
      {"pad", {F({4, 6})}, {{"low", Dims{1, 0}}, {"high", Dims{-1, 0}}, {"interior", Dims{2, 0}}}},
      {"concat", {F({4, 3, 8}), F({4, 0, 8}), F({4, 1, 8})}, axis1},
      {"constant", {}, {{"value", HostTensor::FromVector<double>(DType::kF64, {4}, {1, 2, 3, 4})}}},
      {"iota", {}, {{"shape", Dims{4, 6}}, {"axis", Int(1)}, {"dtype", DType::kI64}}},
      {"copy", {F({4, 6})}, {}},
      {"reduce", {F({4, 6, 8})}, {{"kind", Text("sum")}, {"axes", Dims{0, 2}}}},
      {"reduce", {F({4, 6})}, {{"kind", Text("max")}, {"axes", Dims{1}}}},
      {"reduce", {F({4, 6})}, {{"kind", Text("min")}, {"axes", Dims{1}}}},
      {"reduce", {F({4, 6})}, {{"kind", Text("prod")}, {"axes", Dims{0, 1}}}},
      {"reduce", {B({4, 6})}, {{"kind", Text("and")}, {"axes", Dims{0}}}},
      {"reduce", {B({4, 6})}, {{"kind", Text("or")}, {"axes", Dims{1}}}},
      {"arg_reduce", {F({4, 6})}, {{"kind", Text("max")}, {"axis", Int(1)}}},
      {"cumsum", {F({4, 6})}, axis1},
      {"cumprod", {F({4, 6})}, axis1},
      {"det", {F({4, 2, 3, 3})}, {}},
      {"det_grad", {F({4}), F({4, 3, 3}), {{DType::kI32, {4, 2, 3}}, 1}}, {}},
      {"dot", {F({4, 6, 8}), F({4, 8, 12})}, {{"spec", Text("bmk,bkn->bmn")}}},
      {"dot", {F({4, 6, 8}), F({8, 12, 4})}, {{"spec", Text("bmk,knb->nm")}}},
      {"conv", {F({4, 6, 5, 5}), F({8, 6, 3, 3})}, Window(2, {{"groups", Int(1)}})},
      {"conv", {F({4, 6, 7}), F({12, 3, 3})}, Window(1, {{"groups", Int(2)}})},
      {"conv", {F({4, 8, 7}), F({8, 1, 3})}, Window(1, {{"groups", Int(8)}})},
      {"conv_grad_input",
       {F({4, 8, 5, 5}), F({8, 6, 2, 2})},
       Window(2, {{"groups", Int(1)}, {"input_shape", Dims{4, 6, 5, 5}}})},
      {"conv_grad_input",
       {F({4, 8, 6}), F({8, 1, 2})},
       Window(1, {{"groups", Int(8)}, {"input_shape", Dims{4, 8, 6}}})},
      {"conv_grad_weight",
       {F({4, 8, 5, 5}), F({4, 6, 5, 5})},
       Window(2, {{"groups", Int(1)}, {"weight_shape", Dims{8, 6, 2, 2}}})},
      {"conv_grad_weight",
       {F({4, 8, 6}), F({4, 8, 6})},
       Window(1, {{"groups", Int(8)}, {"weight_shape", Dims{8, 1, 2}}})},
      {"max_pool", {F({4, 6, 5, 5})}, Window(2, {{"kernel", Dims{2, 2}}})},
      {"max_pool_grad",
       {F({4, 6, 5}), {{DType::kU8, {4, 6, 5}}, 1}},
       Window(1, {{"kernel", Dims{2}}, {"input_shape", Dims{4, 6, 5}}})},
      {"avg_pool", {F({4, 6, 5, 5})}, Window(2, {{"kernel", Dims{2, 2}}})},
      {"avg_pool_grad",
       {F({4, 6, 5})},
       Window(1, {{"kernel", Dims{2}}, {"input_shape", Dims{4, 6, 5}}})},
      {"batch_norm", {F({4, 6, 3}), F({6}), F({6})}, {}},
      {"batch_norm_grad", {F({4, 6, 3}), F({4, 6, 3}), F({6}), F({6}), F({6})}, {}},
      {"layer_norm", {F({4, 6, 5}), F({5}), F({5})}, {{"axis", Int(2)}}},
      {"layer_norm_grad",
       {F({4, 6, 5}), F({4, 6, 5}), F({5}), F({4, 6}), F({4, 6})},
       {{"axis", Int(2)}}},
      {"rms_norm", {F({4, 6}), F({6})}, axis1},
      {"rms_norm_grad", {F({4, 6}), F({4, 6}), F({6}), F({4})}, axis1},
      {"softmax", {F({4, 6, 8})}, axis1},
      {"softmax_grad", {F({4, 6, 8}), F({4, 6, 8})}, axis1},
      {"log_softmax", {F({4, 6})}, axis1},
      {"log_softmax_grad", {F({4, 6}), F({4, 6})}, axis1},
      {"cross_entropy", {F({8, 3}), I({8}, 3)}, ignoring},
      {"cross_entropy_grad", {F({8}), F({8, 3}), I({8}, 3), F({8})}, ignoring},
      {"gather", {F({4, 5, 6}), I({8, 2}, 5)}, axis1},
      {"scatter_add", {I({8}, 5), F({4, 8, 6})}, {{"axis", Int(1)}, {"size", Int(5)}}},
      {"gather_elements", {F({4, 5}), I({4, 2}, 5)}, axis1},
      {"scatter_add_elements", {I({4, 3}, 5), F({4, 3})}, {{"axis", Int(1)}, {"size", Int(5)}}},
      {"scatter_elements",
       {F({4, 5, 6}), I({4, 2, 6}, 5), F({4, 2, 6})},
       {{"axis", Int(1)}, {"reduction", Text("sum")}}},
      {"top_k", {F({4, 6})}, {{"axis", Int(1)}, {"k", Int(3)}, {"largest", true}}},
      {"random_uniform", {I({3}, 9)}, {{"shape", Dims{4}}, {"dtype", DType::kF64}}},
      {"accumulate", {F({4, 6}), F({4, 6})}, {}},
      {"accumulate_stat", {F({4}), F({4})}, {{"momentum", 0.9}}},
      {"running_update", {F({4}), F({4}), I({2}, 3)}, {{"momentum", 0.9}}},
      {"stat_weight", {F({4}), I({2}, 3)}, {{"momentum", 0.9}}},
      {"sgd", {F({4, 6}), F({4, 6}), F({}), F({}), F({})}, {}},
      {"momentum", {F({4}), F({4}), F({4}), F({}), F({}), F({}), F({}), I({}, 2)}, {}},
      {"adam",
       {F({4}), F({4}), F({4}), F({4}), F({}), F({}), F({}), F({}), F({}), F({}), I({}, 2)},
       {}},
      {"grad_norm_sq", {F({4, 6})}, {}},
  };
}

// One op on the whole, and whatever cuts it.
class Sharded {
 public:
  explicit Sharded(const Case& c) : function_("f") {
    std::mt19937 random(11);
    ir::Builder builder(&function_);
    std::vector<ir::ValueId> inputs;
    for (const Input& input : c.inputs) {
      in_.push_back(input.type);
      inputs.push_back(function_.AddArgument(input.type, ir::ArgumentKind::kInput, "x"));
      Local& values = whole_in_.emplace_back(Local{input.type.dims, {}});
      const bool floats = ir::IsFloat(input.type.dtype);
      for (int64_t k = 0; k < input.type.elements(); ++k) {
        values.values.push_back(
            floats ? 0.2 + static_cast<double>(random() % 1600) / 1000
                   : static_cast<double>(random() % static_cast<uint32_t>(input.bound)));
      }
    }
    const auto added = builder.TryAdd(c.op, inputs, c.attributes);
    EXPECT_TRUE(added.ok()) << added.status().ToString();
    node_ = &function_.node(function_.value(added->at(0)).producer);
    for (const ir::ValueId v : *added) out_.push_back(function_.type(v));
    whole_out_ = Run(*node_->op, node_->attributes, in_, out_, whole_in_);
  }

  const ir::Function& function() const { return function_; }
  const ir::Node& node() const { return *node_; }

  // Largest difference to the slices of the whole result, relative to its largest element. `forget`
  // leaves out the share of the last rank of partial results: a fault that must be seen.
  double Error(const Mesh& mesh, const NodeFactors& factors, const Assignment& assignment,
               bool forget) const {
    std::vector<Layout> layouts;
    std::vector<TensorType> local_in, local_out;
    for (size_t i = 0; i < in_.size(); ++i) {
      layouts.push_back(factors.InputLayout(assignment, static_cast<int>(i)));
      EXPECT_FALSE(layouts.back().IsPartial());
      local_in.push_back({in_[i].dtype, LocalExtents(mesh, layouts.back(), in_[i].dims)});
    }
    for (size_t o = 0; o < out_.size(); ++o) {
      const Layout layout = factors.OutputLayout(assignment, static_cast<int>(o));
      local_out.push_back({out_[o].dtype, LocalExtents(mesh, layout, out_[o].dims)});
    }
    const Attributes attributes = node_->op->localize
                                      ? node_->op->localize(node_->attributes, local_in, local_out)
                                      : node_->attributes;
    const auto inferred = node_->op->infer(local_in, attributes);
    EXPECT_TRUE(inferred.ok()) << inferred.status().ToString();
    if (!inferred.ok()) return INFINITY;
    EXPECT_EQ(*inferred, local_out);
    std::vector<std::vector<Local>> results;  // by rank
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      std::vector<Local> mine;
      for (size_t i = 0; i < in_.size(); ++i) {
        mine.push_back(Cut(whole_in_[i], SliceOf(mesh, layouts[i], in_[i].dims, rank)));
      }
      results.push_back(Run(*node_->op, attributes, local_in, local_out, mine));
    }
    double error = 0;
    for (size_t o = 0; o < out_.size(); ++o) {
      const Layout layout = factors.OutputLayout(assignment, static_cast<int>(o));
      std::vector<AxisId> partial;
      Partial kind = Partial::kNone;
      for (AxisId a = 0; a < mesh.rank_of_mesh(); ++a) {
        if (layout.partial[static_cast<size_t>(a)] == Partial::kNone) continue;
        partial.push_back(a);
        kind = layout.partial[static_cast<size_t>(a)];
      }
      double largest = 1e-300;
      for (const double v : whole_out_[o].values) largest = std::max(largest, std::abs(v));
      for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
        const Local expected = Cut(whole_out_[o], SliceOf(mesh, layout, out_[o].dims, rank));
        const std::vector<int64_t> group = mesh.Group(rank, partial);
        Local sum = results[static_cast<size_t>(group[0])][o];
        const size_t members = group.size() - (forget && group.size() > 1 ? 1 : 0);
        for (size_t m = 1; m < members; ++m) {
          const Local& share = results[static_cast<size_t>(group[m])][o];
          for (size_t k = 0; k < sum.values.size(); ++k) {
            sum.values[k] = Combine(kind, sum.values[k], share.values[k]);
          }
        }
        for (size_t k = 0; k < sum.values.size(); ++k) {
          error = std::max(error, std::abs(sum.values[k] - expected.values[k]) / largest);
        }
      }
    }
    return error;
  }

  bool MakesShares(const NodeFactors& factors, const Assignment& assignment) const {
    for (int o = 0; o < factors.outputs(); ++o) {
      if (factors.OutputLayout(assignment, o).IsPartial()) return true;
    }
    return false;
  }

 private:
  ir::Function function_;
  const ir::Node* node_ = nullptr;
  std::vector<TensorType> in_, out_;
  std::vector<Local> whole_in_, whole_out_;
};

constexpr double kTolerance = 1e-12;

TEST(Factors, AnAxisServesOneFactor) {
  const Mesh mesh = MakeMesh({{"a", 2}, {"b", 3}});
  const Sharded dot({"dot", {F({4, 6}), F({6, 5})}, {{"spec", Text("mk,kn->mn")}}});
  const NodeFactors factors(mesh, dot.function(), dot.node());
  EXPECT_EQ(factors.letters(), "mkn");
  EXPECT_TRUE(factors.CanCut({}, 'm', {0}));
  EXPECT_FALSE(factors.CanCut({}, 'm', {1}));
  EXPECT_FALSE(factors.CanCut({}, 'n', {0}));
  EXPECT_TRUE(factors.CanCut({}, 'k', {1, 0}));
  EXPECT_FALSE(factors.CanCut({{'m', {0}}}, 'k', {1, 0}));
  // A cut contraction leaves shares; what is cut of the result stays so.
  const Assignment assignment = {{'m', {0}}, {'k', {1}}};
  EXPECT_EQ(factors.InputLayout(assignment, 1).ToString(mesh), "[b, -]");
  EXPECT_EQ(factors.OutputLayout(assignment, 0).ToString(mesh), "[a, -] partial {b: sum}");
}

TEST(Factors, ShardedEqualsUnshardedForEveryWayToCut) {
  std::set<std::string_view> seen;
  int64_t ways = 0, faults = 0;
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.op);
    const Sharded sharded(c);
    ASSERT_FALSE(::testing::Test::HasFailure());
    seen.insert(sharded.node().op->name);
    const auto check = [&](const Mesh& mesh, const Assignment& assignment) {
      const NodeFactors factors(mesh, sharded.function(), sharded.node());
      std::string how = mesh.ToString();
      for (const auto& [letter, axes] : assignment) how += fmt::format(" {}", letter);
      SCOPED_TRACE(how);
      EXPECT_LE(sharded.Error(mesh, factors, assignment, false), kTolerance);
      ++ways;
      if (!sharded.MakesShares(factors, assignment)) return;
      // Max, min, and, or may well not depend on one share.
      faults += sharded.Error(mesh, factors, assignment, true) > kTolerance;
    };
    for (const int64_t parts : {2, 3, 4}) {
      const Mesh mesh = MakeMesh({{"a", parts}});
      const NodeFactors factors(mesh, sharded.function(), sharded.node());
      for (const char letter : factors.letters()) {
        if (factors.CanCut({}, letter, {0})) check(mesh, {{letter, {0}}});
      }
    }
    // Two axes: both on one factor, and one on each of two.
    const Mesh mesh = MakeMesh({{"a", 2}, {"b", 2}});
    const NodeFactors factors(mesh, sharded.function(), sharded.node());
    for (const char first : factors.letters()) {
      if (factors.CanCut({}, first, {1, 0})) check(mesh, {{first, {1, 0}}});
      if (!factors.CanCut({}, first, {0})) continue;
      const Assignment one = {{first, {0}}};
      for (const char second : factors.letters()) {
        if (second == first || !factors.CanCut(one, second, {1})) continue;
        check(mesh, {{first, {0}}, {second, {1}}});
      }
    }
  }
  for (const ir::OpDef* op : ir::CoreOps().ops()) {
    EXPECT_TRUE(seen.contains(op->name)) << op->name << " has no case here";
  }
  fmt::print("figure ways_to_cut {}\nfigure dropped_shares_seen {}\n", ways, faults);
  EXPECT_GT(faults, 20);
}

}  // namespace
}  // namespace hyper::partition
