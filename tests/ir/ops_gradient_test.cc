// Gradients of every differentiable op but map against finite differences; see
// ops_gradient_check.h. Shapes include extents 1, odd and zero.
#include <gtest/gtest.h>

#include <set>

#include "ops_gradient_check.h"

namespace hyper::ir::test {
namespace {

using S = InputSpec;

S Index(Dims dims, int64_t bound) { return {std::move(dims), Draw::kIndex, bound}; }
S Label(Dims dims, int64_t bound) { return {std::move(dims), Draw::kCount, bound}; }

void AddDataMovement(std::vector<GradientCase>& c) {
  auto broadcast = [&](std::string name, Dims x, Dims shape, Dims dims) {
    c.push_back({name, "broadcast", {{x}}, {{"shape", shape}, {"dims", dims}}});
  };
  broadcast("scalar", {}, {2, 3}, {});
  broadcast("rows", {3}, {2, 3}, {1});
  broadcast("ones", {1, 3, 1}, {2, 3, 5}, {0, 1, 2});
  broadcast("middle", {2, 5}, {2, 3, 1, 5}, {0, 3});
  broadcast("to_zero", {1, 3}, {0, 3}, {0, 1});
  broadcast("same", {1, 3}, {1, 3}, {0, 1});
  auto reshape = [&](std::string name, Dims x, Dims shape) {
    c.push_back({name, "reshape", {{x}}, {{"shape", shape}}});
  };
  reshape("merge", {2, 3, 5}, {6, 5});
  reshape("scalar", {1, 1}, {});
  reshape("zero", {0, 3}, {7, 0});
  auto transpose = [&](std::string name, Dims x, Dims perm) {
    c.push_back({name, "transpose", {{x}}, {{"perm", perm}}});
  };
  transpose("cycle", {2, 3, 5}, {2, 0, 1});
  transpose("zero", {0, 1, 3}, {1, 2, 0});
  auto slice = [&](std::string name, Dims x, Dims starts, Dims limits, Dims strides) {
    c.push_back(
        {name, "slice", {{x}}, {{"starts", starts}, {"limits", limits}, {"strides", strides}}});
  };
  slice("inside", {5, 3}, {1, 0}, {4, 3}, {1, 1});
  slice("strided", {7, 5}, {1, 0}, {7, 5}, {2, 3});
  slice("odd_rest", {7}, {2}, {6}, {3});
  slice("nothing", {3, 2}, {1, 0}, {1, 2}, {1, 1});
  slice("of_zero", {0, 2}, {0, 1}, {0, 2}, {1, 1});
  c.push_back({"both", "reverse", {{{3, 1, 2}}}, {{"axes", Dims{0, 2}}}});
  c.push_back({"zero", "reverse", {{{0, 2}}}, {{"axes", Dims{0}}}});
  c.push_back({"three", "concat", {{{2, 3}}, {{2, 1}}, {{2, 2}}}, {{"axis", int64_t{1}}}});
  c.push_back({"with_zero", "concat", {{{0, 3}}, {{2, 3}}}, {{"axis", int64_t{0}}}});
  c.push_back({"single", "concat", {{{2}}}, {{"axis", int64_t{0}}}});
  c.push_back({"plain", "copy", {{{3, 1}}}, {}});
}

void AddPad(std::vector<GradientCase>& c) {
  auto pad = [&](std::string name, std::string mode, Dims x, Dims low, Dims high, Dims interior) {
    c.push_back({name,
                 "pad",
                 {{x}},
                 {{"mode", mode}, {"low", low}, {"high", high}, {"interior", interior}}});
  };
  pad("plain", "constant", {2, 3}, {1, 0}, {0, 2}, {0, 0});
  pad("crop", "constant", {5, 3}, {-1, 1}, {-2, -1}, {0, 0});
  pad("interior", "constant", {3, 2}, {1, 0}, {2, 0}, {2, 1});
  pad("interior_crop", "constant", {4}, {-2}, {-1}, {1});
  pad("crop_all", "constant", {2}, {-2}, {3}, {0});
  pad("of_zero", "constant", {0, 2}, {2, 0}, {1, 1}, {3, 0});
  pad("edge", "edge", {2, 3}, {1, 2}, {3, 0}, {0, 0});
  pad("edge_one", "edge", {1}, {2}, {3}, {0});
  pad("reflect", "reflect", {3, 4}, {2, 1}, {1, 3}, {0, 0});
  pad("reflect_one", "reflect", {1, 3}, {0, 2}, {0, 0}, {0, 0});
}

void AddReductions(std::vector<GradientCase>& c) {
  for (const std::string kind : {"sum", "max", "min", "prod"}) {
    auto reduce = [&](std::string name, S x, Dims axes) {
      c.push_back({kind + "_" + name, "reduce", {x}, {{"kind", kind}, {"axes", axes}}});
    };
    reduce("inner", {{2, 3}}, {1});
    reduce("outer", {{3, 1, 2}}, {0, 1});
    reduce("all", {{5}}, {0});
    reduce("one", {{1, 1}}, {0});
    reduce("zero_rows", {{0, 3}}, {1});
    if (kind == "sum" || kind == "prod") {
      reduce("over_zero", {{0, 3}}, {0});
      reduce("zeros", {{4, 5}, Draw::kWithZeros}, {1});
    }
  }
  for (const bool exclusive : {false, true}) {
    for (const bool reverse : {false, true}) {
      const std::string name =
          std::string(exclusive ? "exclusive" : "inclusive") + (reverse ? "_reverse" : "");
      for (const std::string op : {"cumsum", "cumprod"}) {
        const auto cumulative = [&](S x, int64_t axis) {
          c.push_back(
              {name, op, {x}, {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}}});
        };
        cumulative({{3, 5}}, 1);
        cumulative({{5, 1, 2}}, 0);
        cumulative({{1}}, 0);
        cumulative({{0, 2}}, 0);
        cumulative({{6, 7}, Draw::kWithZeros}, 1);
      }
    }
  }
}

void AddLinearAlgebra(std::vector<GradientCase>& c) {
  for (const Dims& dims :
       {Dims{1, 1}, Dims{2, 2}, Dims{3, 2, 2}, Dims{2, 1, 5, 5}, Dims{0, 3, 3}, Dims{2, 0, 0}}) {
    c.push_back({"any", "det", {{dims}}, {}, 1});
    c.push_back({"zeros", "det", {{dims, Draw::kWithZeros}}, {}, 1});
  }
}

void AddDot(std::vector<GradientCase>& c) {
  auto dot = [&](std::string spec, Dims a, Dims b) {
    c.push_back({spec, "dot", {{a}, {b}}, {{"spec", spec}}});
  };
  dot("mk,kn->mn", {2, 3}, {3, 5});
  dot("mk,nk->mn", {1, 3}, {5, 3});
  dot("km,kn->nm", {3, 2}, {3, 1});
  dot("bmk,bkn->bmn", {2, 3, 1}, {2, 1, 5});
  dot("bhqd,bhkd->bhqk", {1, 2, 3, 2}, {1, 2, 5, 2});
  dot("ab,ba->", {2, 3}, {3, 2});
  dot("i,j->ij", {3}, {2});
  dot("i,i->i", {3}, {3});
  dot("mk,kn->mn", {2, 0}, {0, 3});
  dot("mk,kn->mn", {0, 2}, {2, 3});
}

Attributes Window(Dims strides, Dims low, Dims high, Dims dilations) {
  return {{"strides", strides}, {"pads_low", low}, {"pads_high", high}, {"dilations", dilations}};
}

struct ConvShape {
  std::string name;
  Dims x, w, y;
  Attributes attributes;
  int64_t groups;
};

std::vector<ConvShape> ConvShapes() {
  return {
      {"plain",
       {2, 3, 4, 5},
       {2, 3, 3, 2},
       {2, 2, 2, 4},
       Window({1, 1}, {0, 0}, {0, 0}, {1, 1}),
       1},
      {"strided",
       {1, 2, 5, 4},
       {3, 2, 3, 2},
       {1, 3, 3, 2},
       Window({2, 2}, {1, 0}, {1, 1}, {1, 1}),
       1},
      {"dilated",
       {1, 1, 6, 5},
       {2, 1, 2, 2},
       {1, 2, 4, 4},
       Window({1, 1}, {0, 1}, {1, 0}, {3, 2}),
       1},
      {"groups",
       {1, 4, 3, 3},
       {6, 2, 2, 1},
       {1, 6, 2, 3},
       Window({1, 1}, {0, 0}, {0, 0}, {1, 1}),
       2},
      {"depthwise", {2, 3, 3}, {3, 1, 3}, {2, 3, 3}, Window({1}, {1}, {1}, {1}), 3},
      {"leftover", {1, 1, 6}, {1, 1, 3}, {1, 1, 2}, Window({2}, {0}, {0}, {1}), 1},
      {"volume",
       {1, 1, 2, 3, 2},
       {2, 1, 2, 1, 2},
       {1, 2, 1, 3, 1},
       Window({1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}),
       1},
      {"no_batch", {0, 2, 3}, {1, 2, 2}, {0, 1, 2}, Window({1}, {0}, {0}, {1}), 1},
  };
}

void AddConvolution(std::vector<GradientCase>& c) {
  for (const ConvShape& s : ConvShapes()) {
    Attributes a = s.attributes;
    a.Set("groups", s.groups);
    c.push_back({s.name, "conv", {{s.x}, {s.w}}, a});
    Attributes to_x = a;
    to_x.Set("input_shape", s.x);
    c.push_back({s.name, "conv_grad_input", {{s.y}, {s.w}}, to_x});
    Attributes to_w = a;
    to_w.Set("weight_shape", s.w);
    c.push_back({s.name, "conv_grad_weight", {{s.y}, {s.x}}, to_w});
  }
}

void AddPooling(std::vector<GradientCase>& c) {
  struct PoolShape {
    std::string name;
    Dims x, kernel, y;
    Attributes attributes;
  };
  const std::vector<PoolShape> shapes = {
      {"plain", {1, 2, 4, 3}, {2, 3}, {1, 2, 2, 1}, Window({2, 1}, {0, 0}, {0, 0}, {1, 1})},
      {"overlap", {2, 1, 5}, {3}, {2, 1, 3}, Window({2}, {1}, {1}, {1})},
      {"dilated", {1, 1, 6}, {2}, {1, 1, 4}, Window({1}, {0}, {0}, {2})},
      {"one", {1, 1, 1, 1}, {1, 1}, {1, 1, 1, 1}, Window({1, 1}, {0, 0}, {0, 0}, {1, 1})},
      {"no_batch", {0, 2, 3}, {2}, {0, 2, 2}, Window({1}, {0}, {0}, {1})},
      {"large_window",
       {1, 1, 17, 17},
       {17, 17},
       {1, 1, 1, 1},
       Window({1, 1}, {0, 0}, {0, 0}, {1, 1})},
  };
  for (const PoolShape& s : shapes) {
    Attributes a = s.attributes;
    a.Set("kernel", s.kernel);
    c.push_back({s.name, "max_pool", {{s.x}}, a});
    for (const bool include : {false, true}) {
      Attributes avg = a;
      avg.Set("count_include_pad", include);
      const std::string name = s.name + (include ? "_include" : "");
      c.push_back({name, "avg_pool", {{s.x}}, avg});
      avg.Set("input_shape", s.x);
      c.push_back({name, "avg_pool_grad", {{s.y}}, avg});
    }
  }
}

void AddNormalization(std::vector<GradientCase>& c) {
  const Attributes epsilon = {{"epsilon", 1e-3}};
  c.push_back({"image", "batch_norm", {{{3, 2, 2, 1}}, {{2}}, {{2}}}, epsilon});
  c.push_back({"flat", "batch_norm", {{{5, 3}}, {{3}}, {{3}}}, epsilon});
  c.push_back({"single", "batch_norm", {{{1, 2}}, {{2}}, {{2}}}, {{"epsilon", 0.5}}});
  c.push_back({"no_channel", "batch_norm", {{{2, 0}}, {{0}}, {{0}}}, epsilon});
  auto norm = [&](std::string name, Dims x, int64_t axis) {
    const Dims inner(x.begin() + axis, x.end());
    const Attributes a = {{"axis", axis}, {"epsilon", 1e-3}};
    c.push_back({name, "layer_norm", {{x}, {inner}, {inner}}, a});
    c.push_back({name, "rms_norm", {{x}, {inner}}, a});
  };
  norm("last", {2, 3, 5}, 2);
  norm("two", {3, 2, 2}, 1);
  norm("all", {5}, 0);
  norm("no_rows", {0, 3}, 1);
  c.push_back({"extent_one",
               "layer_norm",
               {{{3, 1}}, {{1}}, {{1}}},
               {{"axis", int64_t{1}}, {"epsilon", 0.5}}});
  c.push_back(
      {"extent_one", "rms_norm", {{{3, 1}}, {{1}}}, {{"axis", int64_t{1}}, {"epsilon", 0.5}}});
  for (const std::string op : {"softmax", "log_softmax"}) {
    c.push_back({"last", op, {{{2, 5}}}, {{"axis", int64_t{1}}}});
    c.push_back({"middle", op, {{{2, 3, 2}}}, {{"axis", int64_t{1}}}});
    c.push_back({"one", op, {{{3, 1}}}, {{"axis", int64_t{1}}}});
    c.push_back({"zero", op, {{{0, 3}}}, {{"axis", int64_t{1}}}});
  }
}

void AddLossAndIndexing(std::vector<GradientCase>& c) {
  c.push_back({"plain", "cross_entropy", {{{3, 5}}, Label({3}, 5)}, {}});
  c.push_back({"one_class", "cross_entropy", {{{2, 1}}, Label({2}, 1)}, {}});
  c.push_back({"no_rows", "cross_entropy", {{{0, 3}}, Label({0}, 3)}, {}});
  c.push_back({"ignore",
               "cross_entropy",
               {{{7, 3}}, Label({7}, 3)},
               {{"has_ignore", true}, {"ignore_index", int64_t{1}}}});
  auto gather = [&](std::string name, Dims x, Dims indices, int64_t axis) {
    const int64_t size = x[static_cast<size_t>(axis)];
    c.push_back({name, "gather", {{x}, Index(indices, size)}, {{"axis", axis}}});
    Dims updates(x.begin(), x.begin() + axis);
    updates.insert(updates.end(), indices.begin(), indices.end());
    updates.insert(updates.end(), x.begin() + axis + 1, x.end());
    c.push_back(
        {name, "scatter_add", {Index(indices, size), {updates}}, {{"axis", axis}, {"size", size}}});
  };
  gather("rows", {5, 3}, {2, 3}, 0);
  gather("middle", {2, 3, 2}, {5}, 1);
  gather("scalar", {3, 2}, {}, 1);
  gather("one", {1, 3}, {7}, 0);
  gather("no_indices", {3, 2}, {0}, 0);
  auto elements = [&](std::string name, Dims x, int64_t count, int64_t axis) {
    const int64_t size = x[static_cast<size_t>(axis)];
    Dims indices = x;
    indices[static_cast<size_t>(axis)] = count;
    c.push_back({name, "gather_elements", {{x}, Index(indices, size)}, {{"axis", axis}}});
    c.push_back({name,
                 "scatter_add_elements",
                 {Index(indices, size), {indices}},
                 {{"axis", axis}, {"size", size}}});
  };
  auto scatter = [&](std::string name, Dims x, Dims indices, int64_t axis) {
    const int64_t size = x[static_cast<size_t>(axis)];
    for (const char* reduction : {"none", "sum", "prod", "max", "min"}) {
      c.push_back({name + "_" + reduction,
                   "scatter_elements",
                   {{x}, Index(indices, size), {indices}},
                   {{"axis", axis}, {"reduction", std::string(reduction)}}});
    }
  };
  scatter("rows", {5, 3}, {1, 3}, 0);
  scatter("shorter", {2, 4, 3}, {1, 1, 2}, 1);
  scatter("nothing", {3, 2}, {0, 2}, 0);
  elements("more", {2, 3}, 5, 1);
  elements("outer", {3, 1, 2}, 2, 0);
  elements("none", {3, 2}, 0, 0);
  auto top_k = [&](std::string name, Dims x, int64_t k, int64_t axis, bool largest) {
    c.push_back({name, "top_k", {{x}}, {{"k", k}, {"axis", axis}, {"largest", largest}}});
  };
  top_k("largest", {2, 5}, 3, 1, true);
  top_k("smallest", {5, 1, 2}, 2, 0, false);
  top_k("one", {1}, 1, 0, true);
  top_k("none", {3, 2}, 0, 1, true);
}

std::vector<GradientCase> Cases() {
  std::vector<GradientCase> cases;
  AddDataMovement(cases);
  AddPad(cases);
  AddReductions(cases);
  AddLinearAlgebra(cases);
  AddDot(cases);
  AddConvolution(cases);
  AddPooling(cases);
  AddNormalization(cases);
  AddLossAndIndexing(cases);
  return cases;
}

class OpGradient : public testing::TestWithParam<GradientCase> {};
TEST_P(OpGradient, MatchesDifferences) { ExpectGradient(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Table, OpGradient, testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param.op + "_" + std::to_string(info.index);
  return name;
});

TEST(OpGradients, EveryDifferentiableOpIsInTheTable) {
  std::set<std::string> covered = {"map"};  // ops_gradient_map_test.cc
  for (const GradientCase& c : Cases()) covered.insert(c.op);
  for (const OpDef* op : CoreOps().ops()) {
    if (!std::holds_alternative<GradientFunction>(op->gradient)) continue;
    EXPECT_TRUE(covered.count(std::string(op->name))) << op->name;
  }
}

}  // namespace
}  // namespace hyper::ir::test
