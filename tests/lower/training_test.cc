// Whole training modules: the lowered @count, @step (first and next micro-batch), @update and @eval
// against the reference interpreter, in the order in which the runtime calls them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ir/reference/reference.h"
#include "ir/training.h"
#include "lower/print.h"
#include "tests/support/lowered_runner.h"

namespace hyper::testing {
namespace {

using ir::ArgumentKind;
using ir::Builder;
using ir::Dims;
using ir::DType;
using ir::ScalarOp;
using ir::ValueId;

constexpr DType kType = DType::kF64;

struct Net {
  ir::ForwardModel model;
  std::map<std::string, Dims> parameters;

  ValueId Parameter(ir::Function& f, const std::string& name, Dims dims) {
    parameters[name] = dims;
    return f.AddArgument({kType, std::move(dims)}, ArgumentKind::kParameter, name);
  }
};

ValueId Conv(Builder& b, ValueId x, ValueId w, int64_t stride) {
  return b.Add1("conv", {x, w},
                {{"strides", Dims{stride, stride}},
                 {"pads_low", Dims{1, 1}},
                 {"pads_high", Dims{1, 1}},
                 {"dilations", Dims{1, 1}},
                 {"groups", int64_t{1}}});
}
ValueId Relu(Builder& b, ValueId x) { return b.BinaryConstant(ScalarOp::kMax, x, 0); }

// conv - bn - relu - dropout - conv(2) + shortcut, pooled, classified.
void ConvBody(Net& net, ir::Function& f, bool train, ir::LossTerm* loss,
              std::vector<ir::RunningStatistic>* statistics) {
  Builder b(&f);
  const ValueId x = f.AddArgument({kType, {4, 3, 8, 8}}, ArgumentKind::kInput, "x");
  const ValueId labels = f.AddArgument({DType::kI64, {4}}, ArgumentKind::kInput, "labels");
  const ValueId w0 = net.Parameter(f, "w0", {6, 3, 3, 3}),
                w1 = net.Parameter(f, "w1", {6, 6, 3, 3});
  const ValueId scale = net.Parameter(f, "scale", {6}), bias = net.Parameter(f, "bias", {6});
  const ValueId fc = net.Parameter(f, "fc", {6, 5}), fb = net.Parameter(f, "fb", {5});
  ValueId h = Conv(b, x, w0, 1);
  if (train) {
    const auto bn = b.Add("batch_norm", {h, scale, bias}, {{"epsilon", 1e-5}});
    statistics->push_back({"running_mean", bn[1], 0.9});
    statistics->push_back({"running_var", bn[2], 0.9});
    h = bn[0];
  } else {
    const ValueId mean = f.AddArgument({kType, {6}}, ArgumentKind::kState, "running_mean");
    const ValueId var = f.AddArgument({kType, {6}}, ArgumentKind::kState, "running_var");
    const Dims shape = f.type(h).dims;
    const auto spread = [&](ValueId v) { return b.Broadcast(v, shape, {1}); };
    const ValueId rstd = b.Unary(ScalarOp::kRsqrt, b.BinaryConstant(ScalarOp::kAdd, var, 1e-5));
    h = b.Binary(ScalarOp::kMul, b.Binary(ScalarOp::kSub, h, spread(mean)),
                 spread(b.Binary(ScalarOp::kMul, rstd, scale)));
    h = b.Binary(ScalarOp::kAdd, h, spread(bias));
  }
  h = Relu(b, h);
  const ValueId second = Conv(b, h, w1, 1);
  h = Relu(b, b.Binary(ScalarOp::kAdd, second, h));
  const auto pooled = b.Add("max_pool", {h},
                            {{"kernel", Dims{2, 2}},
                             {"strides", Dims{2, 2}},
                             {"pads_low", Dims{0, 0}},
                             {"pads_high", Dims{0, 0}},
                             {"dilations", Dims{1, 1}}});
  const ValueId mean = b.BinaryConstant(ScalarOp::kDiv, b.Reduce("sum", pooled[0], {2, 3}), 16);
  const ValueId logits =
      b.Binary(ScalarOp::kAdd, b.Dot("mk,kn->mn", mean, fc), b.Broadcast(fb, {4, 5}, {1}));
  if (!train) f.AddResult(logits, "logits");
  *loss = {ir::LossKind::kCrossEntropy, "loss", logits, labels, 1, std::nullopt, 1.0};
}

// Tied embedding, one attention-free block with LayerNorm and gelu, transposed head.
void TiedBody(Net& net, ir::Function& f, bool train, ir::LossTerm* loss) {
  Builder b(&f);
  const ValueId ids = f.AddArgument({DType::kI64, {2, 6}}, ArgumentKind::kInput, "x");
  const ValueId labels = f.AddArgument({DType::kI64, {2, 6}}, ArgumentKind::kInput, "labels");
  const ValueId table = net.Parameter(f, "table", {11, 8});
  const ValueId scale = net.Parameter(f, "scale", {8}), bias = net.Parameter(f, "bias", {8});
  const ValueId up = net.Parameter(f, "up", {8, 24}), ub = net.Parameter(f, "ub", {24});
  const ValueId h = b.Add1("gather", {table, ids}, {{"axis", int64_t{0}}});
  const auto ln = b.Add("layer_norm", {h, scale, bias}, {{"axis", int64_t{2}}, {"epsilon", 1e-5}});
  const ValueId flat = b.Reshape(ln[0], {12, 8});
  const ValueId u =
      b.Binary(ScalarOp::kAdd, b.Dot("mk,kn->mn", flat, up), b.Broadcast(ub, {12, 24}, {1}));
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < 3; ++i) {
    parts.push_back(b.Add1(
        "slice", {u},
        {{"starts", Dims{0, 8 * i}}, {"limits", Dims{12, 8 * i + 8}}, {"strides", Dims{1, 1}}}));
  }
  const ValueId mixed = b.Binary(
      ScalarOp::kAdd, b.Binary(ScalarOp::kMul, b.Unary(ScalarOp::kTanh, parts[0]), parts[1]),
      b.Unary(ScalarOp::kErf, parts[2]));
  const ValueId res = b.Binary(ScalarOp::kAdd, b.Reshape(mixed, {2, 6, 8}), h);
  const ValueId logits = b.Reshape(b.Dot("mk,nk->mn", b.Reshape(res, {12, 8}), table), {2, 6, 11});
  if (!train) f.AddResult(logits, "logits");
  *loss = {ir::LossKind::kCrossEntropy, "loss", logits, labels, 2, int64_t{3}, 1.0};
}

Net BuildNet(bool convolution) {
  Net net;
  for (bool train : {true, false}) {
    ir::Function f(train ? "step" : "eval");
    ir::LossTerm loss;
    if (convolution)
      ConvBody(net, f, train, &loss, &net.model.statistics);
    else
      TiedBody(net, f, train, &loss);
    (train ? net.model.step_losses : net.model.eval_losses).push_back(loss);
    ir::AssignOpIds(f);
    net.model.module.functions.push_back(std::move(f));
  }
  for (const auto& [name, dims] : net.parameters) {
    net.model.module.tensors.push_back({name, "", {kType, dims}, ArgumentKind::kParameter, {}});
  }
  if (convolution) {
    for (const char* n : {"running_mean", "running_var"}) {
      net.model.module.tensors.push_back({n, "", {kType, {6}}, ArgumentKind::kState, {}});
    }
  }
  return net;
}

using Key = std::tuple<int, std::string, std::string>;

// The reference side: named tensors and one function call on them.
struct Oracle {
  const ir::Module& module;
  std::map<Key, ir::HostTensor> tensors;

  std::map<std::string, ir::HostTensor> Call(const std::string& name, bool first) {
    const ir::Function& f = *module.Find(name);
    std::vector<ir::HostTensor> arguments;
    for (const ir::Argument& a : f.arguments()) {
      ir::HostTensor& t = tensors.at(Key(static_cast<int>(a.kind), a.name, a.slot));
      const bool accumulator =
          a.kind == ArgumentKind::kGradient || a.kind == ArgumentKind::kStatistic;
      arguments.push_back(first && accumulator ? ir::HostTensor::Zeros(t.type()) : t);
    }
    const auto results = ir::Evaluate(f, arguments);
    EXPECT_TRUE(results.ok()) << results.status().ToString();
    std::map<std::string, ir::HostTensor> plain;
    for (size_t i = 0; i < f.results().size(); ++i) {
      const ir::FunctionResult& r = f.results()[i];
      if (r.alias_argument < 0) {
        plain[r.name] = (*results)[i];
        continue;
      }
      const ir::Argument& a = f.arguments()[static_cast<size_t>(r.alias_argument)];
      tensors[Key(static_cast<int>(a.kind), a.name, a.slot)] = (*results)[i];
    }
    return plain;
  }
};

lower::Storage StorageOf(ArgumentKind kind) {
  switch (kind) {
    case ArgumentKind::kInput: return lower::Storage::kInput;
    case ArgumentKind::kParameter: return lower::Storage::kParameter;
    case ArgumentKind::kFrozen: return lower::Storage::kFrozen;
    case ArgumentKind::kState: return lower::Storage::kState;
    case ArgumentKind::kGradient: return lower::Storage::kGradient;
    case ArgumentKind::kStatistic: return lower::Storage::kStatistic;
    case ArgumentKind::kOptimizer: return lower::Storage::kOptimizer;
    default: return lower::Storage::kScalar;
  }
}

ir::HostTensor Initial(const ir::Argument& a, const ir::TensorType& type) {
  if (a.name == ir::kScalarStep) return ir::HostTensor::ScalarI64(2);
  if (a.name == ir::kScalarStatisticScale) {
    return ir::HostTensor::FromVector<int64_t>(DType::kI64, {2}, {2, 1});
  }
  if (a.name == ir::kScalarBeta1 || a.name == ir::kScalarBeta2) {
    const double beta = a.name == ir::kScalarBeta1 ? 0.9 : 0.999;
    return ir::HostTensor::FromVector<double>(DType::kF64, {}, {beta});
  }
  static uint64_t state = 88172645463325252ull;
  const auto next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  if (type.dtype == DType::kI64) {
    std::vector<int64_t> v;
    for (int64_t i = 0; i < type.elements(); ++i) v.push_back(static_cast<int64_t>(next() % 5));
    return ir::HostTensor::FromVector(type.dtype, type.dims, v);
  }
  std::vector<double> v;
  for (int64_t i = 0; i < type.elements(); ++i) {
    v.push_back(static_cast<double>(next() >> 11) * 0x1p-53 * (a.slot == "v" ? 1.0 : 2.0) -
                (a.slot == "v" ? 0.0 : 1.0));
    if (a.kind == ArgumentKind::kState || a.kind == ArgumentKind::kScalar)
      v.back() = std::fabs(v.back()) + 0.1;
  }
  return ir::HostTensor::FromVector(type.dtype, type.dims, v);
}

void ExpectNear(const ir::HostTensor& got, const ir::HostTensor& want, const std::string& what) {
  ASSERT_EQ(got.type(), want.type()) << what;
  for (int64_t i = 0; i < want.type().elements(); ++i) {
    const double x = got.ElementAsDouble(i), y = want.ElementAsDouble(i);
    ASSERT_LE(std::fabs(x - y), 1e-11 * (1 + std::fabs(y))) << what << " element " << i;
  }
}

void Check(bool convolution, ir::OptimizerSpec optimizer, bool reference) {
  Net net = BuildNet(convolution);
  Diagnostics diagnostics;
  std::vector<std::string> unreached;
  Result<ir::Module> module =
      ir::BuildTrainingModule(std::move(net.model), optimizer, true, &diagnostics, &unreached);
  ASSERT_TRUE(module.ok()) << module.status().ToString() << diagnostics.Render();
  lower::LowerOptions options;
  options.reference_kernels = reference;
  Result<lower::LoweredModule> lowered = lower::Lower(*module, options);
  ASSERT_TRUE(lowered.ok()) << lowered.status().ToString();
  SCOPED_TRACE(lower::Print(*lowered));
  KernelSet kernels;
  Status status = kernels.Add(*lowered);
  ASSERT_TRUE(status.ok()) << status.ToString();
  status = kernels.Compile();
  ASSERT_TRUE(status.ok()) << status.ToString();
  Oracle oracle{*module, {}};
  LoweredRunner runner(*lowered, kernels);
  for (const ir::Function& f : module->functions) {
    for (const ir::Argument& a : f.arguments()) {
      const Key key(static_cast<int>(a.kind), a.name, a.slot);
      if (oracle.tensors.count(key) != 0) continue;
      oracle.tensors[key] = Initial(a, f.type(a.value));
      runner.Set(StorageOf(a.kind), a.name, oracle.tensors[key], a.slot);
    }
  }
  const std::pair<const char*, const char*> calls[] = {{"count", "count"},
                                                       {"step", "step_first"},
                                                       {"step", "step_next"},
                                                       {"step", "step_next"},
                                                       {"stat_weight", "stat_weight"},
                                                       {"grad_norm", "grad_norm"},
                                                       {"update", "update"},
                                                       {"eval", "eval"}};
  for (const auto& [source, name] : calls) {
    if (module->Find(source) == nullptr) continue;
    SCOPED_TRACE(name);
    const auto plain = oracle.Call(source, std::string(name) == "step_first");
    runner.Poison();
    status = runner.Run(name, 2);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const auto& [result, want] : plain) {
      const auto got = runner.Result_(name, result);
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      ExpectNear(*got, want, result);
    }
    for (const auto& [key, want] : oracle.tensors) {
      const auto kind = static_cast<ArgumentKind>(std::get<0>(key));
      ExpectNear(runner.Get(StorageOf(kind), std::get<1>(key), std::get<2>(key)), want,
                 std::get<1>(key));
    }
  }
  // Every parameter's gradient is announced once per step function, in storage order.
  for (const lower::LoweredFunction& f : lowered->functions) {
    std::vector<std::string> marked;
    for (const lower::LoweredOp& op : f.ops) {
      if (const auto* m = std::get_if<lower::MarkerKernel>(&op.kernel)) {
        marked.insert(marked.end(), m->parameters.begin(), m->parameters.end());
      }
    }
    if (f.name == "step_first") {
      EXPECT_EQ(marked, lowered->parameter_order);
    } else if (f.name != "step_next") {
      EXPECT_TRUE(marked.empty()) << f.name;
    }
    EXPECT_EQ(std::set<std::string>(marked.begin(), marked.end()).size(), marked.size());
  }
}

ir::OptimizerSpec Adam(bool decoupled) {
  ir::OptimizerSpec s;
  s.kind = ir::OptimizerKind::kAdam;
  s.decoupled_decay = decoupled;
  return s;
}
ir::OptimizerSpec Momentum(bool nesterov) {
  ir::OptimizerSpec s;
  s.kind = ir::OptimizerKind::kMomentum;
  s.nesterov = nesterov;
  return s;
}

TEST(LowerTraining, ConvNetWithMomentum) { Check(true, Momentum(false), false); }
TEST(LowerTraining, ConvNetWithAdamW) { Check(true, Adam(true), false); }
TEST(LowerTraining, TiedTransformerWithAdam) { Check(false, Adam(false), false); }
TEST(LowerTraining, TiedTransformerWithNesterov) { Check(false, Momentum(true), false); }
TEST(LowerTraining, TiedTransformerWithSgd) { Check(false, {}, false); }
TEST(LowerTraining, ReferenceKernels) { Check(true, Adam(true), true); }

}  // namespace
}  // namespace hyper::testing
