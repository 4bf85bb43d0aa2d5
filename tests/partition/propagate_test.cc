// Layouts of whole functions from few seeds, and the collectives they ask for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "ir/training.h"
#include "partition/propagate.h"
#include "tests/partition/virtual_ranks.h"

namespace hyper::partition {
namespace {

using ir::ArgumentKind;
using ir::Dims;
using ir::DType;
using ir::TensorType;
using ir::ValueId;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 4, kSequence = 16, kHidden = 32, kInner = 128;

// y = relu(x w1) w2 + bias of a transformer's block, its loss sum(y * y) and all gradients.
struct Block {
  ir::Function function{"step"};
  std::map<std::string, ValueId> values;

  explicit Block(DType dtype = DType::kF32) {
    ir::Builder b(&function);
    const auto argument = [&](const std::string& name, Dims dims) {
      values[name] = function.AddArgument({dtype, std::move(dims)}, ArgumentKind::kParameter, name);
      function.value(values[name]).name = name;
    };
    argument("x", {kBatch, kSequence, kHidden});
    argument("w1", {kHidden, kInner});
    argument("w2", {kInner, kHidden});
    argument("bias", {kHidden});
    argument("seed", {});
    const ValueId a = b.Dot("bsh,hi->bsi", values["x"], values["w1"]);
    const ValueId r = b.Unary(ir::ScalarOp::kTanh, a);
    const ValueId m = b.Dot("bsi,ih->bsh", r, values["w2"]);
    const ValueId y = b.Binary(ir::ScalarOp::kAdd, m,
                               b.Broadcast(values["bias"], {kBatch, kSequence, kHidden}, {2}));
    values["y"] = y;
    const ValueId loss = b.Reduce("sum", b.Binary(ir::ScalarOp::kMul, y, y), {0, 1, 2});
    const std::vector<std::string> wanted = {"x", "w1", "w2", "bias"};
    std::vector<ValueId> ids;
    for (const std::string& name : wanted) ids.push_back(values[name]);
    const auto gradients = ir::AppendGradients(function, {{loss, values["seed"]}}, ids, nullptr);
    EXPECT_TRUE(gradients.ok()) << gradients.status().ToString();
    for (size_t i = 0; i < wanted.size(); ++i) {
      values["d" + wanted[i]] = gradients->at(i);
      function.AddResult(gradients->at(i), "d" + wanted[i], function.ArgumentIndex(ids[i]));
    }
  }

  Seed At(const Mesh& mesh, const std::string& name, const std::vector<std::string>& dims) const {
    return {values.at(name), MakeLayout(mesh, dims), "seed"};
  }
};

struct Planned {
  FunctionLayouts layouts;
  std::vector<PlannedStep> steps;

  Planned(const Mesh& mesh, const Block& block, const std::vector<Seed>& seeds) {
    auto found = Propagate(mesh, block.function, seeds);
    EXPECT_TRUE(found.ok()) << found.status().ToString();
    layouts = std::move(found).value();
    auto plan = PlanSteps(mesh, block.function, layouts);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    steps = std::move(plan).value();
  }

  // "all_reduce tp 8192", without what sends nothing.
  std::vector<std::string> Sent(const Mesh& mesh) const {
    std::vector<std::string> texts;
    for (const PlannedStep& p : steps) {
      if (p.step.payload_bytes == 0) continue;
      std::string axes;
      for (const AxisId axis : p.step.axes) axes += (axes.empty() ? "" : ">") + mesh.name(axis);
      texts.push_back(
          fmt::format("{} {} {}", StepKindName(p.step.kind), axes, p.step.payload_bytes));
    }
    return texts;
  }
};

constexpr int64_t kActivation = kBatch * kSequence * kHidden * 4;

// Column, then row: one all-reduce of the activation forward, one backward.
TEST(Propagate, ColumnThenRow) {
  const Block block;
  const Mesh mesh = MakeMesh({{"tp", 4}});
  const Planned planned(mesh, block,
                        {block.At(mesh, "w1", {"-", "tp"}), block.At(mesh, "w2", {"tp", "-"})});
  const std::string once = fmt::format("all_reduce tp {}", kActivation);
  EXPECT_THAT(planned.Sent(mesh), ElementsAre(once, once));
  // Gradients of cut weights are cut alike.
  const auto made = [&](const char* name) {
    return planned.layouts.made[static_cast<size_t>(block.values.at(name).index)].ToString(mesh);
  };
  EXPECT_EQ(made("dw1"), "[-, tp]");
  EXPECT_EQ(made("dw2"), "[tp, -]");
  EXPECT_EQ(made("dbias"), "[-]");
}

// The same with activations that are cut by sequence between the blocks: what was an all-reduce
// becomes a reduce-scatter and an all-gather.
TEST(Propagate, SequenceBetweenBlocks) {
  const Block block;
  const Mesh mesh = MakeMesh({{"tp", 4}});
  const Planned planned(
      mesh, block,
      {block.At(mesh, "w1", {"-", "tp"}), block.At(mesh, "w2", {"tp", "-"}),
       block.At(mesh, "x", {"-", "tp", "-"}), block.At(mesh, "y", {"-", "tp", "-"})});
  const std::string gather = fmt::format("all_gather tp {}", kActivation / 4);
  const std::string scatter = fmt::format("reduce_scatter tp {}", kActivation);
  const std::vector<std::string> sent = planned.Sent(mesh);
  EXPECT_EQ(std::count(sent.begin(), sent.end(), gather), 2) << ::testing::PrintToString(sent);
  EXPECT_EQ(std::count(sent.begin(), sent.end(), scatter), 2);
  // The bias is whole on every rank, its gradient a share of each: the only one more.
  EXPECT_THAT(sent, ::testing::Contains(fmt::format("all_reduce tp {}", kHidden * 4)));
  EXPECT_EQ(sent.size(), 5u) << ::testing::PrintToString(sent);
}

// Batch cut: no collective but those of the gradients.
TEST(Propagate, BatchOnly) {
  const Block block;
  const Mesh mesh = MakeMesh({{"dp", 4}});
  const Planned planned(mesh, block, {block.At(mesh, "x", {"dp", "-", "-"})});
  const std::vector<std::string> sent = planned.Sent(mesh);
  EXPECT_THAT(sent,
              ::testing::UnorderedElementsAre(fmt::format("all_reduce dp {}", kHidden * kInner * 4),
                                              fmt::format("all_reduce dp {}", kHidden * kInner * 4),
                                              fmt::format("all_reduce dp {}", kHidden * 4)));
}

TEST(Propagate, WithoutSeedsNothingIsCut) {
  const Block block;
  const Mesh mesh = MakeMesh({{"tp", 4}});
  const Planned planned(mesh, block, {});
  EXPECT_TRUE(planned.steps.empty());
  for (const Layout& layout : planned.layouts.made) EXPECT_TRUE(layout.IsReplicated());
}

TEST(Propagate, SameSeedsInAnyOrderSamePlan) {
  const Block block;
  const Mesh mesh = MakeMesh({{"dp", 2}, {"tp", 2}});
  const std::vector<Seed> seeds = {block.At(mesh, "w1", {"-", "tp"}),
                                   block.At(mesh, "w2", {"tp", "-"}),
                                   block.At(mesh, "x", {"dp", "-", "-"})};
  const Planned one(mesh, block, seeds);
  const Planned other(mesh, block, {seeds[2], seeds[0], seeds[1]});
  EXPECT_EQ(one.layouts.made, other.layouts.made);
  EXPECT_EQ(one.Sent(mesh), other.Sent(mesh));
  // What is given stays, and a plan's own layouts given again change nothing.
  std::vector<Seed> again;
  for (int v = 0; v < block.function.value_count(); ++v) {
    const Layout& made = one.layouts.made[static_cast<size_t>(v)];
    if (!made.IsPartial()) again.push_back({{v}, made, "again"});
  }
  EXPECT_EQ(Planned(mesh, block, again).layouts.made, one.layouts.made);
}

TEST(Propagate, ASeedThatDoesNotFitNamesItsValue) {
  const Block block;
  const Mesh mesh = MakeMesh({{"tp", 3}});
  const auto found =
      Propagate(mesh, block.function, std::vector{block.At(mesh, "w1", {"-", "tp"})});
  EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(found.status().message(), HasSubstr("'w1'"));
  EXPECT_THAT(found.status().message(), HasSubstr("these do: 1, 2, 4"));
}

}  // namespace
}  // namespace hyper::partition
