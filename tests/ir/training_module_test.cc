// BuildTrainingModule on a small network with a running statistic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "training_support.h"

namespace hyper::ir::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// y = relu(x w + b) v; cross entropy; the batch mean of x w + b is a running statistic. "unused"
// reaches nothing.
struct Network {
  ForwardModel model;

  explicit Network(std::optional<int64_t> ignore_index = -100, DType dtype = DType::kF32) {
    Module& m = model.module;
    m.name = "net";
    auto tensor = [&](std::string name, Dims dims, ArgumentKind kind) {
      std::vector<float> values(static_cast<size_t>(ElementCount(dims)));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = 0.1F * static_cast<float>((i * 7 + name.size()) % 11) - 0.4F;
      }
      const std::vector<double> wide(values.begin(), values.end());
      m.tensors.push_back({name,
                           "",
                           {dtype, dims},
                           kind,
                           dtype == DType::kF64 ? F64(dims, wide) : F32(dims, values)});
    };
    tensor("w", {3, 2}, ArgumentKind::kParameter);
    tensor("unused", {5}, ArgumentKind::kParameter);
    tensor("b", {2}, ArgumentKind::kParameter);
    tensor("v", {2, 3}, ArgumentKind::kParameter);
    tensor("mean", {2}, ArgumentKind::kState);
    for (const std::string name : {"step", "eval"}) {
      Function f(name);
      Builder b(&f);
      const ValueId x = f.AddArgument({dtype, {4, 3}}, ArgumentKind::kInput, "x");
      const ValueId labels = f.AddArgument({DType::kI64, {4}}, ArgumentKind::kInput, "labels");
      std::map<std::string, ValueId> t;
      for (const PersistentTensor& p : m.tensors) {
        t[p.name] = f.AddArgument(p.type, p.kind, p.name);
      }
      b.SetContext(Role::kForward, -1, "hidden");
      const ValueId h =
          b.Binary(ScalarOp::kAdd, b.Dot("mk,kn->mn", x, t["w"]), b.Broadcast(t["b"], {4, 2}, {1}));
      if (name == "step") {
        const ValueId mean = b.BinaryConstant(ScalarOp::kMul, b.Reduce("sum", h, {0}), 0.25);
        model.statistics.push_back({"mean", mean, 0.9});
      }
      const ValueId r = b.BinaryConstant(ScalarOp::kMax, h, 0);
      b.SetContext(Role::kForward, -1, "head");
      const ValueId y = b.Dot("mk,kn->mn", r, t["v"]);
      f.AddResult(y, "logits");
      LossTerm term;
      term.kind = LossKind::kCrossEntropy;
      term.name = "loss";
      term.prediction = y;
      term.target = labels;
      term.ignore_index = ignore_index;
      (name == "step" ? model.step_losses : model.eval_losses).push_back(term);
      m.functions.push_back(std::move(f));
    }
  }
};

Result<Module> Build(Network network, OptimizerSpec optimizer,
                     std::vector<std::string>* unreached = nullptr) {
  return BuildTrainingModule(std::move(network.model), optimizer, true, nullptr, unreached);
}

TEST(TrainingModule, HasItsFunctionsResultsAndAliases) {
  OptimizerSpec adam;
  adam.kind = OptimizerKind::kAdam;
  adam.decoupled_decay = true;
  std::vector<std::string> unreached;
  const auto module = Build(Network(), adam, &unreached);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  ASSERT_TRUE(Verify(*module).ok()) << Verify(*module).ToString() << Print(*module);
  EXPECT_THAT(unreached, ElementsAre("unused"));
  EXPECT_EQ(module->FindTensor("unused")->kind, ArgumentKind::kFrozen);
  std::vector<std::string> names;
  for (const Function& f : module->functions) names.push_back(f.name());
  EXPECT_THAT(names, ElementsAre("count", "step", "stat_weight", "grad_norm", "update", "eval"));

  auto results = [&](std::string_view function) {
    const Function& f = *module->Find(function);
    std::vector<std::string> out;
    for (const FunctionResult& r : f.results()) {
      std::string text = r.name;
      if (r.alias_argument >= 0) {
        const Argument& a = f.arguments()[static_cast<size_t>(r.alias_argument)];
        text += " = " + std::string(ArgumentKindName(a.kind)) + " " + a.name;
        if (!a.slot.empty()) text += " " + a.slot;
      }
      out.push_back(text);
    }
    return out;
  };
  EXPECT_THAT(results("count"), ElementsAre("count.loss"));
  // The head's weight is ready first, then the bias and the first weight.
  const std::vector<std::string> step = results("step");
  ASSERT_EQ(step.size(), 5u);
  EXPECT_EQ(step[0], "loss.loss");
  EXPECT_EQ(step[1], "v = gradient v");
  EXPECT_EQ(step[4], "mean = statistic mean");
  EXPECT_THAT(results("stat_weight"), ElementsAre("mean = statistic mean"));
  EXPECT_THAT(results("grad_norm"),
              ElementsAre("grad_norm_sq.w", "grad_norm_sq.b", "grad_norm_sq.v"));
  EXPECT_THAT(results("update"),
              ElementsAre("w = parameter w", "w.m = optimizer w m", "w.v = optimizer w v",
                          "b = parameter b", "b.m = optimizer b m", "b.v = optimizer b v",
                          "v = parameter v", "v.m = optimizer v m", "v.v = optimizer v v",
                          "mean = state mean"));
  EXPECT_THAT(results("eval"), ElementsAre("loss.loss", "logits"));
  // The optimizer's values are left to the launch.
  std::vector<std::string> scalars;
  for (const Argument& a : module->Find("update")->arguments()) {
    if (a.kind == ArgumentKind::kScalar) scalars.push_back(a.name);
  }
  EXPECT_THAT(scalars, ElementsAre("lr", "clip_coef", "beta1", "beta2", "epsilon", "weight_decay",
                                   "step", "stat_scale"));
}

TEST(TrainingModule, TextHasAccumulationRightBehindTheGradient) {
  const auto module = Build(Network(), {});
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const Function& step = *module->Find("step");
  for (size_t i = 0; i < step.order().size(); ++i) {
    const Node& node = step.node(step.order()[i]);
    if (node.op->name != "accumulate") continue;
    ASSERT_GT(i, 0u);
    const NodeId before = step.value(node.inputs[1]).producer;
    EXPECT_EQ(before, step.order()[i - 1]);
    EXPECT_EQ(RoleName(node.role), "weight_grad");
  }
  const std::string text = Print(*module);
  EXPECT_THAT(text, HasSubstr("cross_entropy_grad"));
  EXPECT_THAT(text, HasSubstr("mk,mn->kn"));
  EXPECT_THAT(text, HasSubstr("grad_norm_sq"));
  EXPECT_THAT(text, HasSubstr("running_update"));
  EXPECT_THAT(text, HasSubstr("seed.loss"));
  const auto parsed = Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(Print(*parsed), text);
}

// Evaluates a function, taking each argument by kind and name from `values`.
std::map<std::string, HostTensor> RunFunction(const Function& f,
                                              const std::map<std::string, HostTensor>& values) {
  std::vector<HostTensor> arguments;
  for (const Argument& a : f.arguments()) {
    const std::string key = std::string(ArgumentKindName(a.kind)) + "/" + a.name + a.slot;
    EXPECT_TRUE(values.count(key)) << key;
    arguments.push_back(values.at(key));
  }
  const auto out = Evaluate(f, arguments);
  EXPECT_TRUE(out.ok()) << out.status().ToString();
  std::map<std::string, HostTensor> named;
  for (size_t i = 0; i < f.results().size(); ++i) named[f.results()[i].name] = (*out)[i];
  return named;
}

TEST(TrainingModule, TrainsInDouble) {
  OptimizerSpec sgd;
  auto module = Build(Network(-100, DType::kF64), sgd);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  ASSERT_TRUE(Verify(*module).ok()) << Verify(*module).ToString();
  std::map<std::string, HostTensor> v;
  for (const PersistentTensor& t : module->tensors) {
    EXPECT_EQ(t.type.dtype, DType::kF64);
    v[std::string(ArgumentKindName(t.kind)) + "/" + t.name] = t.initial;
    v["gradient/" + t.name] = HostTensor::Zeros(t.type);
    v["statistic/" + t.name] = HostTensor::Zeros(t.type);
  }
  v["input/x"] =
      F64({4, 3}, {1.13, 0.07, 2.29, -1.31, 1.17, 0.53, 0.37, 2.11, 1.03, -2.23, 0.71, 1.19});
  v["input/labels"] = I64({4}, {0, 2, -100, 1});
  const auto count = RunFunction(*module->Find("count"), v);
  EXPECT_EQ(count.at("count.loss").ElementAsInt(0), 3);
  v["scalar/seed.loss"] = F64({}, {1.0 / 3});
  v["scalar/lr"] = F64({}, {0.1});
  v["scalar/clip_coef"] = F64({}, {1});
  v["scalar/weight_decay"] = F64({}, {0});
  v["scalar/step"] = HostTensor::ScalarI64(1);
  v["scalar/stat_scale"] = I64({2}, {2, 0});

  const Function& step = *module->Find("step");
  const auto first = RunFunction(step, v);
  // The gradient agrees with differences of the mean loss.
  for (const std::string name : {"w", "b", "v"}) {
    const std::vector<double> x = Numbers(v.at("parameter/" + name));
    const std::vector<double> g = Numbers(first.at(name));
    for (size_t i = 0; i < x.size(); ++i) {
      auto loss_at = [&](double moved) {
        std::vector<double> values = x;
        values[i] = moved;
        std::map<std::string, HostTensor> changed = v;
        changed["parameter/" + name] = F64(v.at("parameter/" + name).type().dims, values);
        return RunFunction(step, changed).at("loss.loss").ElementAsDouble(0) / 3;
      };
      EXPECT_NEAR(g[i], (loss_at(x[i] + 1e-5) - loss_at(x[i] - 1e-5)) / 2e-5, 1e-8) << name << i;
    }
  }
  // A second micro-batch adds to the accumulators.
  std::map<std::string, HostTensor> again = v;
  for (const std::string name : {"w", "b", "v"}) again["gradient/" + name] = first.at(name);
  again["statistic/mean"] = first.at("mean");
  const auto second = RunFunction(step, again);
  for (const std::string name : {"w", "b", "v"}) {
    const std::vector<double> once = Numbers(first.at(name));
    const std::vector<double> twice = Numbers(second.at(name));
    for (size_t i = 0; i < once.size(); ++i) EXPECT_DOUBLE_EQ(twice[i], 2 * once[i]);
    again["gradient/" + name] = second.at(name);
  }
  again["statistic/mean"] = second.at("mean");
  const auto norm = RunFunction(*module->Find("grad_norm"), again);
  double squares = 0;
  for (double g : Numbers(second.at("v"))) squares += g * g;
  EXPECT_NEAR(norm.at("grad_norm_sq.v").ElementAsDouble(0), squares, 1e-14);
  const auto updated = RunFunction(*module->Find("update"), again);
  EXPECT_DOUBLE_EQ(Numbers(updated.at("w"))[0],
                   Numbers(v.at("parameter/w"))[0] - 0.1 * Numbers(second.at("w"))[0]);
  // Two micro-batches with the same batch mean m: s -> 0.9 (0.9 s + 0.1 m) + 0.1 m.
  const double m = Numbers(first.at("mean"))[0] / (1 - 0.9);
  const double s = Numbers(v.at("state/mean"))[0];
  EXPECT_NEAR(Numbers(updated.at("mean"))[0], 0.81 * s + 0.19 * m, 1e-12);
}

TEST(TrainingModule, RefusesWhatCannotBeTrained) {
  Network frozen;
  for (Function& f : frozen.model.module.functions) {
    for (Argument& a : f.mutable_arguments()) {
      if (a.kind == ArgumentKind::kParameter && a.name != "unused") a.kind = ArgumentKind::kFrozen;
    }
  }
  const auto none = Build(std::move(frozen), {});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("nothing to train"));

  Network no_loss;
  no_loss.model.step_losses.clear();
  EXPECT_FALSE(Build(std::move(no_loss), {}).ok());

  // Labels computed from a weight: how many count is not known from the data.
  Network computed;
  Function& step = *computed.model.module.Find("step");
  Builder b(&step);
  LossTerm& term = computed.model.step_losses[0];
  const int w = step.FindArgument(ArgumentKind::kParameter, "unused");
  const ValueId last = b.Add1("slice", {step.arguments()[static_cast<size_t>(w)].value},
                              {{"starts", Dims{1}}, {"limits", Dims{5}}, {"strides", Dims{1}}});
  term.target = b.Cast(DType::kI64, last);
  const auto bad = Build(std::move(computed), {});
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.status().message(), HasSubstr("the labels depend on parameter 'unused'"));
}

TEST(TrainingModule, ConstantCountsAndLabelsComputedFromData) {
  const auto plain = Build(Network(std::nullopt), {});
  ASSERT_TRUE(plain.ok());
  const auto out = Evaluate(*plain->Find("count"), std::vector<HostTensor>{});
  ASSERT_TRUE(out.ok()) << out.status().ToString();
  EXPECT_EQ((*out)[0], HostTensor::ScalarI64(4));

  Network shifted;
  for (const std::string name : {"step", "eval"}) {
    Function& f = *shifted.model.module.Find(name);
    Builder b(&f);
    const ValueId wide = f.AddArgument({DType::kI64, {5}}, ArgumentKind::kInput, "wide");
    LossTerm& term = (name == "step" ? shifted.model.step_losses : shifted.model.eval_losses)[0];
    term.target =
        b.Add1("slice", {wide}, {{"starts", Dims{1}}, {"limits", Dims{5}}, {"strides", Dims{1}}});
  }
  const auto module = Build(std::move(shifted), {});
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const auto counted =
      Evaluate(*module->Find("count"), std::vector<HostTensor>{I64({5}, {-100, 1, -100, 0, 2})});
  ASSERT_TRUE(counted.ok()) << counted.status().ToString();
  EXPECT_EQ((*counted)[0], HostTensor::ScalarI64(3));
}

}  // namespace
}  // namespace hyper::ir::test
