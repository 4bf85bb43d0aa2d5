// AppendGradients: sums, roles, paths without gradient, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "training_support.h"

namespace hyper::ir::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Fixture {
  Function f{"step"};
  Builder b{&f};
  ValueId Arg(Dims dims, ArgumentKind kind, const std::string& name, DType dtype = DType::kF64) {
    return f.AddArgument({dtype, std::move(dims)}, kind, name);
  }
  ValueId Seed() { return Arg({}, ArgumentKind::kScalar, "seed.loss"); }
};

TEST(Autodiff, SumsContributionsInProgramOrder) {
  Fixture t;
  const ValueId w = t.Arg({2}, ArgumentKind::kParameter, "w");
  const ValueId seed = t.Seed();
  const ValueId first = t.b.BinaryConstant(ScalarOp::kMul, w, 2);
  const ValueId second = t.b.BinaryConstant(ScalarOp::kMul, w, 3);
  const ValueId square = t.b.Binary(ScalarOp::kMul, w, w);
  const ValueId total =
      t.b.Binary(ScalarOp::kAdd, t.b.Binary(ScalarOp::kAdd, first, second), square);
  const ValueId loss = t.b.Reduce("sum", total, {0});
  const auto grads = AppendGradients(t.f, {{loss, seed}}, std::vector<ValueId>{w}, nullptr);
  ASSERT_TRUE(grads.ok()) << grads.status().ToString();
  t.f.AddResult((*grads)[0], "g");
  ASSERT_TRUE(Verify(t.f).ok()) << Verify(t.f).ToString();
  const auto out = Evaluate(t.f, std::vector<HostTensor>{F64({2}, {1, -2}), F64({}, {10})});
  ASSERT_TRUE(out.ok()) << out.status().ToString();
  EXPECT_THAT(Numbers((*out)[0]), ElementsAre(70, 10));  // 10 * (2 + 3 + 2w)
}

TEST(Autodiff, EqualExtremaShareTheGradient) {
  for (const std::string kind : {"max", "min"}) {
    Fixture t;
    const ValueId x = t.Arg({2, 3}, ArgumentKind::kParameter, "x");
    const ValueId seed = t.Seed();
    const ValueId loss = t.b.Reduce("sum", t.b.Reduce(kind, x, {1}), {0});
    const auto grads = AppendGradients(t.f, {{loss, seed}}, std::vector<ValueId>{x}, nullptr);
    ASSERT_TRUE(grads.ok());
    t.f.AddResult((*grads)[0], "g");
    const double far = kind == "max" ? -5 : 5;
    const auto out = Evaluate(
        t.f, std::vector<HostTensor>{F64({2, 3}, {1, far, 1, far, 2, far * 2}), F64({}, {1})});
    ASSERT_TRUE(out.ok()) << out.status().ToString();
    const std::vector<double> g = Numbers((*out)[0]);
    EXPECT_THAT(std::vector<double>(g.begin(), g.begin() + 3), ElementsAre(0.5, 0, 0.5)) << kind;
  }
}

TEST(Autodiff, ReluKeepsTheSignOfZeroAndInfinity) {
  Fixture t;
  const ValueId x = t.Arg({3}, ArgumentKind::kParameter, "x");
  const ValueId c = t.Arg({3}, ArgumentKind::kInput, "c");
  const ValueId seed = t.Seed();
  const ValueId y = t.b.BinaryConstant(ScalarOp::kMax, x, 0);
  const ValueId loss = t.b.Reduce("sum", t.b.Binary(ScalarOp::kMul, y, c), {0});
  const auto grads = AppendGradients(t.f, {{loss, seed}}, std::vector<ValueId>{x}, nullptr);
  ASSERT_TRUE(grads.ok());
  t.f.AddResult((*grads)[0], "g");
  const auto out = Evaluate(
      t.f, std::vector<HostTensor>{F64({3}, {-1, 0, 2}), F64({3}, {INFINITY, 7, 3}), F64({}, {1})});
  ASSERT_TRUE(out.ok());
  EXPECT_THAT(Numbers((*out)[0]), ElementsAre(0, 0, 3));
}

TEST(Autodiff, WeightGradientsHaveTheirOwnRole) {
  Fixture t;
  const ValueId x = t.Arg({2, 3}, ArgumentKind::kParameter, "x0");  // so that dx is wanted too
  const ValueId w = t.Arg({5, 3}, ArgumentKind::kParameter, "w");
  const ValueId data = t.Arg({2, 3}, ArgumentKind::kInput, "data");
  const ValueId seed = t.Seed();
  t.b.SetContext(Role::kForward, 7, "fc");
  const ValueId h = t.b.Binary(ScalarOp::kMul, x, data);
  const ValueId y = t.b.Dot("mk,kn->mn", h, t.b.Transpose(w, {1, 0}));
  const ValueId loss = t.b.Reduce("sum", t.b.Binary(ScalarOp::kMul, y, y), {0, 1});
  ASSERT_TRUE(AppendGradients(t.f, {{loss, seed}}, std::vector<ValueId>{x, w}, nullptr).ok());
  std::vector<std::string> dots;
  for (NodeId id : t.f.order()) {
    const Node& node = t.f.node(id);
    if (node.op->name != "dot") continue;
    dots.push_back(std::string(RoleName(node.role)) + " " + node.attributes.String("spec"));
    EXPECT_EQ(node.op_id, 7);
    EXPECT_EQ(node.source, "fc");
  }
  EXPECT_THAT(dots,
              ElementsAre("forward mk,kn->mn", "input_grad mn,kn->mk", "weight_grad mk,mn->kn"));
}

TEST(Autodiff, OpsOffThePathNeedNoGradient) {
  Fixture t;
  const ValueId w = t.Arg({2}, ArgumentKind::kParameter, "w");
  const ValueId data = t.Arg({2, 2}, ArgumentKind::kInput, "data");
  const ValueId dead = t.Arg({2}, ArgumentKind::kParameter, "dead");
  const ValueId seed = t.Seed();
  // No gradient exists for softmax_grad; here only data flows through it.
  const ValueId odd = t.b.Add1("softmax_grad", {data, data}, {{"axis", int64_t{1}}});
  const ValueId rows = t.b.Reduce("sum", odd, {1});
  t.b.Add1("softmax_grad", {t.b.Broadcast(dead, {2, 2}, {0}), data}, {{"axis", int64_t{1}}});
  const ValueId loss = t.b.Reduce("sum", t.b.Binary(ScalarOp::kMul, rows, w), {0});
  const auto grads = AppendGradients(t.f, {{loss, seed}}, std::vector<ValueId>{w, dead}, nullptr);
  ASSERT_TRUE(grads.ok()) << grads.status().ToString();
  EXPECT_TRUE((*grads)[0].valid());
  EXPECT_FALSE((*grads)[1].valid());
}

TEST(Autodiff, ReportsEveryObstacleAtOnce) {
  Fixture t;
  const ValueId w = t.Arg({2, 2}, ArgumentKind::kParameter, "w");
  const ValueId seed = t.Seed();
  t.b.SetContext(Role::kForward, 0, "first");
  const ValueId a = t.b.Add1("softmax_grad", {w, w}, {{"axis", int64_t{1}}});
  t.b.SetContext(Role::kForward, 1, "second");
  const ValueId c = t.b.Binary(ScalarOp::kFmod, t.b.Splat(DType::kF64, {2, 2}, 3), a);
  const ValueId loss = t.b.Reduce("sum", c, {0, 1});
  Diagnostics diagnostics;
  const auto grads = AppendGradients(t.f, {{loss, seed}}, std::vector<ValueId>{w}, &diagnostics);
  ASSERT_FALSE(grads.ok());
  EXPECT_EQ(grads.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(grads.status().message(), HasSubstr("node 'first': op 'softmax_grad'"));
  EXPECT_THAT(grads.status().message(), HasSubstr("second derivatives are not supported"));
  EXPECT_THAT(grads.status().message(), HasSubstr("node 'second': op 'map'"));
  EXPECT_THAT(grads.status().message(), HasSubstr("divisor"));
  EXPECT_EQ(diagnostics.error_count(), 2);
}

TEST(Autodiff, StopsWhereTheDerivativeIsZero) {
  Fixture t;
  const ValueId w = t.Arg({2}, ArgumentKind::kParameter, "w");
  const ValueId seed = t.Seed();
  const ValueId loss = t.b.Reduce("sum", t.b.Unary(ScalarOp::kFloor, w), {0});
  const auto grads = AppendGradients(t.f, {{loss, seed}}, std::vector<ValueId>{w}, nullptr);
  ASSERT_TRUE(grads.ok());
  EXPECT_FALSE((*grads)[0].valid());
}

TEST(Autodiff, RefusesALossThatIsNoScalar) {
  Fixture t;
  const ValueId w = t.Arg({2}, ArgumentKind::kParameter, "w");
  const auto grads = AppendGradients(t.f, {{w, w}}, std::vector<ValueId>{w}, nullptr);
  ASSERT_FALSE(grads.ok());
  EXPECT_THAT(grads.status().message(), HasSubstr("f64[2], expected a float scalar"));
}

TEST(Autodiff, CastsInsideAMapAreFollowed) {
  Fixture t;
  const ValueId w = t.Arg({2}, ArgumentKind::kParameter, "w", DType::kF32);
  const ValueId seed = t.Seed();
  const ValueId wide = t.b.Cast(DType::kF64, w);
  const ValueId loss = t.b.Reduce("sum", t.b.Binary(ScalarOp::kMul, wide, wide), {0});
  const auto grads = AppendGradients(t.f, {{loss, seed}}, std::vector<ValueId>{w}, nullptr);
  ASSERT_TRUE(grads.ok()) << grads.status().ToString();
  t.f.AddResult((*grads)[0], "g");
  const auto out = Evaluate(t.f, std::vector<HostTensor>{F32({2}, {3, -4}), F64({}, {1})});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ((*out)[0].type().dtype, DType::kF32);
  EXPECT_THAT(Numbers((*out)[0]), ElementsAre(6, -8));
}

TEST(OpIds, AreSharedByNodesOfOneSource) {
  Module module;
  for (const std::string name : {"step", "eval"}) {
    Function f(name);
    Builder b(&f);
    const ValueId x = f.AddArgument({DType::kF32, {2}}, ArgumentKind::kInput, "x");
    ValueId v = x;
    if (name == "step") {
      b.SetContext(Role::kForward, -1, "dropout");
      v = b.BinaryConstant(ScalarOp::kMul, v, 2);
    }
    b.SetContext(Role::kForward, -1, "act");
    v = b.Unary(ScalarOp::kTanh, v);
    f.AddResult(b.Unary(ScalarOp::kExp, v), "y");
    module.functions.push_back(std::move(f));
  }
  AssignOpIds(module);
  auto ids = [&](const Function& f) {
    std::vector<int64_t> out;
    for (NodeId id : f.order()) out.push_back(f.node(id).op_id);
    return out;
  };
  EXPECT_THAT(ids(module.functions[0]), ElementsAre(0, 1, 2));
  EXPECT_THAT(ids(module.functions[1]), ElementsAre(1, 2));
}

}  // namespace
}  // namespace hyper::ir::test
