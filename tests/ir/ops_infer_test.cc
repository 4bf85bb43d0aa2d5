// Inference: result types of good inputs, and messages of bad ones, which name the dim, the value
// found and what fits. One table row per rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/builder.h"

namespace hyper::ir {
namespace {

struct InferCase {
  std::string op;
  std::vector<TensorType> inputs;
  Attributes attributes;
  std::string expected;  // "f32[2,3] i64[2]", or a part of the message
};

TensorType F(Dims dims) { return {DType::kF32, std::move(dims)}; }
TensorType I(Dims dims) { return {DType::kI64, std::move(dims)}; }
TensorType B(Dims dims) { return {DType::kBool, std::move(dims)}; }
const TensorType kF64Scalar{DType::kF64, {}};

Result<std::string> Infer(const InferCase& c) {
  Function f("f");
  Builder b(&f);
  std::vector<ValueId> inputs;
  for (const TensorType& t : c.inputs) {
    inputs.push_back(f.AddArgument(t, ArgumentKind::kInput, "x" + std::to_string(inputs.size())));
  }
  HYPER_ASSIGN_OR_RETURN(const std::vector<ValueId> out, b.TryAdd(c.op, inputs, c.attributes));
  std::string text;
  for (ValueId v : out) text += (text.empty() ? "" : " ") + f.type(v).ToString();
  return text;
}

Attributes Window(Dims strides, Dims low, Dims high, Dims dilations) {
  return {{"strides", strides}, {"pads_low", low}, {"pads_high", high}, {"dilations", dilations}};
}
Attributes With(Attributes a, std::string name, Attribute value) {
  a.Set(std::move(name), std::move(value));
  return a;
}
Attributes Pad(std::string mode, Dims low, Dims high, Dims interior) {
  return {{"mode", mode}, {"low", low}, {"high", high}, {"interior", interior}};
}
Attributes Slice(Dims starts, Dims limits, Dims strides) {
  return {{"starts", starts}, {"limits", limits}, {"strides", strides}};
}
Expr AddExpr() {
  ExprBuilder e;
  return e.Build(e.Binary(ScalarOp::kAdd, e.Input(0, DType::kF32), e.Input(1, DType::kF32)));
}
Expr LessExpr() {
  ExprBuilder e;
  return e.Build(e.Binary(ScalarOp::kLt, e.Input(0, DType::kF32), e.Input(1, DType::kF32)));
}
const Attributes kPlain2 = Window({1, 1}, {0, 0}, {0, 0}, {1, 1});

std::vector<InferCase> Good() {
  const Attributes norm = {{"axis", int64_t{1}}};
  return {
      {"map", {F({2, 3}), F({2, 3})}, {{"expr", AddExpr()}}, "f32[2,3]"},
      {"map", {F({0}), F({0})}, {{"expr", LessExpr()}}, "bool[0]"},
      {"broadcast", {F({1, 3})}, {{"shape", Dims{2, 4, 3}}, {"dims", Dims{1, 2}}}, "f32[2,4,3]"},
      {"reshape", {F({2, 3})}, {{"shape", Dims{6}}}, "f32[6]"},
      {"reshape", {F({0, 3})}, {{"shape", Dims{5, 0}}}, "f32[5,0]"},
      {"transpose", {I({2, 3, 4})}, {{"perm", Dims{2, 0, 1}}}, "i64[4,2,3]"},
      {"slice", {F({7, 2})}, Slice({1, 0}, {6, 2}, {2, 1}), "f32[3,2]"},
      {"slice", {F({7})}, Slice({7}, {7}, {1}), "f32[0]"},
      {"reverse", {F({2, 3})}, {{"axes", Dims{1}}}, "f32[2,3]"},
      {"pad", {F({3})}, Pad("constant", {-1}, {2}, {2}), "f32[8]"},
      {"pad", {F({0})}, Pad("constant", {1}, {2}, {5}), "f32[3]"},
      {"pad", {F({3})}, Pad("reflect", {2}, {2}, {0}), "f32[7]"},
      {"concat", {F({2, 3}), F({2, 0}), F({2, 1})}, {{"axis", int64_t{1}}}, "f32[2,4]"},
      {"constant", {}, {{"value", HostTensor::ScalarI64(3)}}, "i64[]"},
      {"iota",
       {},
       {{"shape", Dims{2, 3}}, {"axis", int64_t{1}}, {"dtype", DType::kI32}},
       "i32[2,3]"},
      {"copy", {B({2})}, {}, "bool[2]"},
      {"reduce", {F({2, 3, 4})}, {{"kind", std::string("sum")}, {"axes", Dims{2, 0}}}, "f32[3]"},
      {"reduce", {B({2, 3})}, {{"kind", std::string("and")}, {"axes", Dims{1}}}, "bool[2]"},
      {"arg_reduce", {F({2, 3})}, {{"kind", std::string("max")}, {"axis", int64_t{0}}}, "i64[3]"},
      {"cumsum", {I({2, 3})}, {{"axis", int64_t{0}}}, "i64[2,3]"},
      {"cumprod", {F({2, 3})}, {{"axis", int64_t{1}}}, "f32[2,3]"},
      {"det", {F({2, 3, 3})}, {}, "f32[2] f32[2,3,3] i32[2,2,3]"},
      {"det", {F({0, 0})}, {}, "f32[] f32[0,0] i32[2,0]"},
      {"det_grad", {F({2}), F({2, 3, 3}), {DType::kI32, {2, 2, 3}}}, {}, "f32[2,3,3]"},
      {"dot", {F({2, 3, 4}), F({2, 4, 5})}, {{"spec", std::string("bmk,bkn->bmn")}}, "f32[2,3,5]"},
      {"dot", {F({3}), F({3})}, {{"spec", std::string("k,k->")}}, "f32[]"},
      {"conv",
       {F({2, 4, 5, 5}), F({6, 2, 3, 3})},
       With(Window({2, 1}, {1, 0}, {1, 0}, {1, 2}), "groups", int64_t{2}),
       "f32[2,6,3,1]"},
      {"conv_grad_input",
       {F({1, 2, 2}), F({2, 3, 3})},
       With(Window({2}, {0}, {0}, {1}), "input_shape", Dims{1, 3, 6}),
       "f32[1,3,6]"},
      {"conv_grad_weight",
       {F({1, 2, 2}), F({1, 3, 6})},
       With(Window({2}, {0}, {0}, {1}), "weight_shape", Dims{2, 3, 3}),
       "f32[2,3,3]"},
      {"max_pool",
       {F({1, 2, 4, 4})},
       With(kPlain2, "kernel", Dims{2, 2}),
       "f32[1,2,3,3] u8[1,2,3,3]"},
      {"max_pool",
       {F({1, 1, 17, 17})},
       With(kPlain2, "kernel", Dims{17, 17}),
       "f32[1,1,1,1] i32[1,1,1,1]"},
      {"avg_pool",
       {F({1, 2, 4})},
       With(Window({2}, {1}, {1}, {1}), "kernel", Dims{2}),
       "f32[1,2,3]"},
      {"batch_norm", {F({2, 3, 4}), F({3}), F({3})}, {}, "f32[2,3,4] f32[3] f32[3]"},
      {"layer_norm", {F({2, 3}), F({3}), F({3})}, norm, "f32[2,3] f32[2] f32[2]"},
      {"rms_norm", {F({2, 3}), F({3})}, norm, "f32[2,3] f32[2]"},
      {"softmax", {F({2, 3})}, norm, "f32[2,3]"},
      {"cross_entropy", {F({4, 3}), I({4})}, {}, "f32[4] f32[4]"},
      {"cross_entropy_grad", {F({4}), F({4, 3}), I({4}), F({4})}, {}, "f32[4,3]"},
      {"gather", {F({5, 3}), I({2, 2})}, {{"axis", int64_t{0}}}, "f32[2,2,3]"},
      {"scatter_add",
       {I({2, 2}), F({2, 2, 3})},
       {{"axis", int64_t{0}}, {"size", int64_t{5}}},
       "f32[5,3]"},
      {"gather_elements", {F({5, 3}), I({2, 3})}, {{"axis", int64_t{0}}}, "f32[2,3]"},
      {"scatter_add_elements",
       {I({2, 3}), F({2, 3})},
       {{"axis", int64_t{0}}, {"size", int64_t{5}}},
       "f32[5,3]"},
      {"scatter_elements",
       {F({5, 3}), I({2, 2}), F({2, 2})},
       {{"axis", int64_t{0}}, {"reduction", std::string("none")}},
       "f32[5,3]"},
      {"top_k", {F({5, 3})}, {{"axis", int64_t{0}}, {"k", int64_t{2}}}, "f32[2,3] i64[2,3]"},
      {"random_uniform", {I({3})}, {{"shape", Dims{2}}, {"dtype", DType::kF64}}, "f64[2]"},
      {"accumulate", {F({2}), F({2})}, {}, "f32[2]"},
      {"running_update", {F({2}), F({2}), I({2})}, {{"momentum", 0.9}}, "f32[2]"},
      {"sgd", {F({2}), F({2}), F({}), F({}), kF64Scalar}, {}, "f32[2]"},
      {"momentum",
       {F({2}), F({2}), F({2}), F({}), F({}), kF64Scalar, kF64Scalar, I({})},
       {},
       "f32[2] f32[2]"},
      {"adam",
       {F({2}), F({2}), F({2}), F({2}), F({}), F({}), kF64Scalar, kF64Scalar, kF64Scalar,
        kF64Scalar, I({})},
       {},
       "f32[2] f32[2] f32[2]"},
      {"grad_norm_sq", {F({2, 3})}, {}, "f64[]"},
      {"max_pool_grad",
       {F({1, 1, 2}), {DType::kU8, {1, 1, 2}}},
       With(With(Window({1}, {0}, {0}, {1}), "kernel", Dims{2}), "input_shape", Dims{1, 1, 3}),
       "f32[1,1,3]"},
      {"avg_pool_grad",
       {F({1, 1, 2})},
       With(With(Window({1}, {0}, {0}, {1}), "kernel", Dims{2}), "input_shape", Dims{1, 1, 3}),
       "f32[1,1,3]"},
      {"batch_norm_grad",
       {F({2, 3}), F({2, 3}), F({3}), F({3}), F({3})},
       {},
       "f32[2,3] f32[3] f32[3]"},
      {"layer_norm_grad",
       {F({2, 3}), F({2, 3}), F({3}), F({2}), F({2})},
       norm,
       "f32[2,3] f32[3] f32[3]"},
      {"rms_norm_grad", {F({2, 3}), F({2, 3}), F({3}), F({2})}, norm, "f32[2,3] f32[3]"},
      {"softmax_grad", {F({2, 3}), F({2, 3})}, norm, "f32[2,3]"},
      {"log_softmax", {F({2, 3})}, norm, "f32[2,3]"},
      {"log_softmax_grad", {F({2, 3}), F({2, 3})}, norm, "f32[2,3]"},
      {"accumulate_stat", {F({2}), F({2})}, {{"momentum", 0.9}}, "f32[2]"},
      {"stat_weight", {F({2}), I({2})}, {{"momentum", 0.9}}, "f32[2]"},
  };
}

std::vector<InferCase> Bad() {
  const Attributes norm = {{"axis", int64_t{1}}};
  return {
      {"map", {F({2}), F({3})}, {{"expr", AddExpr()}}, "dim 0 of input 1 is 3, expected 2"},
      {"map", {F({2})}, {{"expr", AddExpr()}}, "expr reads x1, but there are 1 inputs"},
      {"map",
       {F({2}), I({2})},
       {{"expr", AddExpr()}},
       "input 1 is i64[2], expected element type f32"},
      {"broadcast",
       {F({2})},
       {{"shape", Dims{3}}, {"dims", Dims{0}}},
       "dim 0 of input 0 is 2, expected 1 or 3"},
      {"broadcast",
       {F({2, 2})},
       {{"shape", Dims{2, 2}}, {"dims", Dims{1, 0}}},
       "must increase strictly"},
      {"broadcast",
       {F({2})},
       {{"shape", Dims{2}}, {"dims", Dims{1}}},
       "entry 0 of dims is 1, expected 0 to 0"},
      {"reshape", {F({2, 3})}, {{"shape", Dims{4}}}, "with 6 elements, but shape [4] has 4"},
      {"reshape",
       {F({2})},
       {{"shape", Dims{-1, -2}}},
       "entry 0 of shape is -1, expected at least 0"},
      {"transpose", {F({2, 3})}, {{"perm", Dims{0, 0}}}, "perm [0,0] names dim 0 twice"},
      {"transpose", {F({2, 3})}, {{"perm", Dims{0}}}, "perm [0] has 1 entries, expected 2"},
      {"slice",
       {F({3})},
       Slice({1}, {4}, {1}),
       "dim 0 of input 0 is 3, slice [1, 4) does not lie inside"},
      {"slice", {F({3})}, Slice({0}, {2}, {0}), "entry 0 of strides is 0, expected at least 1"},
      {"reverse", {F({3})}, {{"axes", Dims{1}}}, "axes is 1, expected 0 to 0 for rank 1"},
      {"pad",
       {F({3})},
       Pad("mirror", {1}, {0}, {0}),
       "mode is 'mirror', expected one of constant, edge, reflect"},
      {"pad",
       {F({3})},
       Pad("reflect", {3}, {0}, {0}),
       "dim 0 of input 0 is 3, mode reflect with padding 3 needs at least 4"},
      {"pad", {F({0})}, Pad("edge", {1}, {0}, {0}), "needs at least 1"},
      {"pad", {F({3})}, Pad("edge", {-1}, {0}, {0}), "cropping needs mode constant"},
      {"pad", {F({3})}, Pad("constant", {-2}, {-2}, {0}), "leaves -1 elements"},
      {"concat",
       {F({2, 3}), F({3, 3})},
       {{"axis", int64_t{1}}},
       "dim 0 of input 1 is 3, expected 2"},
      {"concat", {F({2}), I({2})}, {{"axis", int64_t{0}}}, "expected element type f32"},
      {"concat", {}, {{"axis", int64_t{0}}}, "has 0 inputs, expected 1 or more"},
      {"iota", {}, {{"shape", Dims{2}}, {"axis", int64_t{1}}, {"dtype", DType::kI32}}, "axis is 1"},
      {"reduce", {F({2})}, {{"kind", std::string("mean")}, {"axes", Dims{0}}}, "kind is 'mean'"},
      {"reduce",
       {F({2})},
       {{"kind", std::string("or")}, {"axes", Dims{0}}},
       "expected element type bool"},
      {"reduce",
       {F({2})},
       {{"kind", std::string("sum")}, {"axes", Dims{0, 0}}},
       "names dim 0 twice"},
      {"arg_reduce",
       {F({0, 3})},
       {{"kind", std::string("max")}, {"axis", int64_t{0}}},
       "dim 0 of input 0 is 0, expected at least 1"},
      {"cumsum", {B({2})}, {{"axis", int64_t{0}}}, "expected a number type"},
      {"det", {I({2, 2})}, {}, "input 0 is i64, expected f32 or f64"},
      {"det", {F({2})}, {}, "rank"},
      {"det", {F({2, 3})}, {}, "the matrices are square"},
      {"dot",
       {F({2, 3}), F({4, 5})},
       {{"spec", std::string("mk,kn->mn")}},
       "dim 0 of input 1 is 4, expected 3"},
      {"dot", {F({2, 3}), F({3, 5})}, {{"spec", std::string("mk,kn->m")}}, "letter 'n' of spec"},
      {"dot",
       {F({2, 2}), F({2, 2})},
       {{"spec", std::string("mm,mn->n")}},
       "letter 'm' occurs twice"},
      {"dot", {F({2}), F({2})}, {{"spec", std::string("k,k")}}, "is not of the form"},
      {"dot", {F({2, 3}), F({3})}, {{"spec", std::string("mk,kn->mn")}}, "rank 1, expected rank 2"},
      {"conv",
       {F({1, 3, 5, 5}), F({2, 2, 3, 3})},
       kPlain2,
       "dim 1 of input 1 is 2, with 1 groups that needs 2 channels, but dim 1 of input 0 is 3"},
      {"conv",
       {F({1, 4, 5}), F({3, 2, 3})},
       With(Window({1}, {0}, {0}, {1}), "groups", int64_t{2}),
       "dim 0 of input 1 is 3, expected a multiple of the 2 groups"},
      {"conv",
       {F({1, 1, 2, 5}), F({1, 1, 3, 3})},
       kPlain2,
       "dim 2 is 2, 2 with padding, but the window of 3 taps spans 3"},
      {"conv",
       {F({1, 1, 5}), F({1, 1, 3})},
       Window({0}, {0}, {0}, {1}),
       "entry 0 of strides is 0, expected at least 1"},
      {"conv",
       {F({1, 1, 5}), F({1, 1, 3})},
       Window({1, 1}, {0}, {0}, {1}),
       "strides [1,1] has 2 entries, expected 1"},
      {"conv",
       {F({1, 1, 5}), F({1, 1, 3})},
       Window({1}, {-1}, {0}, {1}),
       "entry 0 of pads_low is -1, expected at least 0"},
      {"conv",
       {F({1, 1, 5}), F({1, 1, 3})},
       Window({1}, {0}, {0}, {int64_t{1} << 62}),
       "expected at most"},
      {"conv_grad_input",
       {F({1, 2, 3}), F({2, 3, 3})},
       With(Window({2}, {0}, {0}, {1}), "input_shape", Dims{1, 3, 6}),
       "dim 2 of input 0 is 3, expected 2"},
      {"conv_grad_weight",
       {F({1, 2, 2}), F({1, 3, 6})},
       With(Window({2}, {0}, {0}, {1}), "weight_shape", Dims{2, 2, 3}),
       "dim 1 of weight_shape is 2"},
      {"max_pool",
       {F({1, 1, 3})},
       With(Window({1}, {2}, {0}, {1}), "kernel", Dims{2}),
       "window 0 along dim 2 lies in the padding only"},
      {"max_pool",
       {F({1, 1, 3})},
       With(Window({3}, {0}, {3}, {1}), "kernel", Dims{2}),
       "window 1 along dim 2 lies in the padding only"},
      {"max_pool",
       {F({1, 3})},
       With(Window({}, {}, {}, {}), "kernel", Dims{}),
       "expected rank 3 or more"},
      {"max_pool_grad",
       {F({1, 1, 2}), I({1, 1, 2})},
       With(With(Window({1}, {0}, {0}, {1}), "kernel", Dims{2}), "input_shape", Dims{1, 1, 3}),
       "expected element type u8"},
      {"batch_norm",
       {F({2, 3}), F({2}), F({3})},
       {},
       "dim 0 of input 1 is 2, expected 3 (one scale per channel)"},
      {"layer_norm", {F({2, 3}), F({2}), F({3})}, norm, "dim 0 of input 1 is 2, expected 3"},
      {"layer_norm", {F({2}), F({3}), F({3})}, norm, "axis is 1, expected 0 to 0 for rank 1"},
      {"layer_norm_grad",
       {F({2, 3}), F({2, 3}), F({3}), F({3}), F({2})},
       norm,
       "dim 0 of input 3 is 3, expected 2"},
      {"softmax_grad", {F({2, 3}), F({2, 2})}, norm, "dim 1 of input 1 is 2, expected 3"},
      {"cross_entropy",
       {F({4, 3}), I({3})},
       {},
       "dim 0 of input 1 is 3, expected 4 (one label per row"},
      {"cross_entropy", {F({4, 3}), F({4})}, {}, "input 1 is f32[4], expected i32 or i64"},
      {"cross_entropy", {F({4, 0}), I({4})}, {}, "expected at least 1 class"},
      {"gather",
       {F({0, 3}), I({2})},
       {{"axis", int64_t{0}}},
       "dim 0 is 0, but input 1 holds 2 indices"},
      {"gather", {F({3}), F({2})}, {{"axis", int64_t{0}}}, "expected i32 or i64"},
      {"scatter_add",
       {I({2}), F({3, 3})},
       {{"axis", int64_t{0}}, {"size", int64_t{5}}},
       "dim 0 of input 1 is 3, expected 2"},
      {"scatter_add",
       {I({2}), F({2})},
       {{"axis", int64_t{0}}, {"size", int64_t{-1}}},
       "size is -1"},
      {"gather_elements",
       {F({5, 3}), I({2, 2})},
       {{"axis", int64_t{0}}},
       "dim 1 of input 1 is 2, expected 3"},
      {"top_k", {F({5})}, {{"axis", int64_t{0}}, {"k", int64_t{6}}}, "k is 6, expected 0 to 5"},
      {"random_uniform",
       {I({2})},
       {{"shape", Dims{2}}, {"dtype", DType::kF64}},
       "dim 0 of input 0 is 2, expected 3"},
      {"random_uniform",
       {I({3})},
       {{"shape", Dims{2}}, {"dtype", DType::kI64}},
       "expected a float type"},
      {"accumulate", {F({2}), F({3})}, {}, "dim 0 of input 1 is 3, expected 2"},
      {"sgd",
       {F({2}), F({2}), F({1}), F({}), kF64Scalar},
       {},
       "input 2 is f32[1] of rank 1, expected rank 0"},
      {"sgd",
       {F({2}), F({2}), F({}), F({}), F({})},
       {},
       "expected element type f64 (a value of the optimizer)"},
      {"adam",
       {F({2}), F({2}), F({2}), F({2}), F({}), F({}), kF64Scalar, kF64Scalar, kF64Scalar,
        kF64Scalar, F({})},
       {},
       "expected element type i64 (the step number)"},
      {"running_update",
       {F({2}), F({2}), I({3})},
       {{"momentum", 0.9}},
       "dim 0 of input 2 is 3, expected 2"},
      {"stat_weight", {F({2}), I({2})}, {}, "attribute 'momentum' (float) is missing"},
  };
}

TEST(Infer, GoodInputs) {
  for (const InferCase& c : Good()) {
    const auto got = Infer(c);
    EXPECT_TRUE(got.ok()) << c.op << ": " << got.status().ToString();
    if (!got.ok()) continue;
    EXPECT_EQ(*got, c.expected) << c.op;
  }
}

TEST(Infer, EveryOpIsInTheTable) {
  std::set<std::string> covered;
  for (const InferCase& c : Good()) covered.insert(c.op);
  for (const OpDef* op : CoreOps().ops())
    EXPECT_TRUE(covered.count(std::string(op->name))) << op->name;
}

// Extents near the end of 64 bits are refused, without overflow on the way.
TEST(Infer, HostileAttributesAreRefused) {
  constexpr int64_t kHuge = INT64_MAX;
  const Attributes window = With(Window({1}, {kHuge}, {kHuge}, {kHuge}), "kernel", Dims{kHuge});
  const std::vector<InferCase> cases = {
      {"reshape", {F({2})}, {{"shape", Dims{kHuge, kHuge}}}, ""},
      {"reshape", {F({0})}, {{"shape", Dims{kHuge, 2, 0}}}, ""},
      {"broadcast", {F({1})}, {{"shape", Dims{kHuge}}, {"dims", Dims{0}}}, ""},
      {"pad", {F({2})}, Pad("constant", {kHuge}, {kHuge}, {0}), ""},
      {"pad", {F({2})}, Pad("constant", {INT64_MIN}, {INT64_MIN}, {0}), ""},
      {"pad", {F({9})}, Pad("constant", {0}, {0}, {kHuge}), ""},
      {"slice", {F({2})}, Slice({0}, {kHuge}, {1}), ""},
      {"iota",
       {},
       {{"shape", Dims{kHuge, kHuge}}, {"axis", int64_t{0}}, {"dtype", DType::kI32}},
       ""},
      {"conv", {F({1, 1, 2}), F({1, 1, 1})}, Window({kHuge}, {kHuge}, {kHuge}, {kHuge}), ""},
      {"conv", {F({1, 1, 2}), F({1, 1, 1})}, With(Window({1}, {0}, {0}, {1}), "groups", kHuge), ""},
      {"conv_grad_input",
       {F({1, 1, 2}), F({1, 1, 1})},
       With(Window({1}, {0}, {0}, {1}), "input_shape", Dims{kHuge, kHuge, kHuge}),
       ""},
      {"conv_grad_weight",
       {F({1, 1, 2}), F({1, 1, 2})},
       With(Window({1}, {0}, {0}, {1}), "weight_shape", Dims{kHuge, kHuge, kHuge}),
       ""},
      {"max_pool", {F({1, 1, 2})}, window, ""},
      {"scatter_add", {I({2}), F({2, 3})}, {{"axis", int64_t{0}}, {"size", kHuge}}, ""},
      {"random_uniform", {I({3})}, {{"shape", Dims{kHuge, 3}}, {"dtype", DType::kF64}}, ""},
  };
  for (const InferCase& c : cases) {
    const auto got = Infer(c);
    ASSERT_FALSE(got.ok()) << c.op << " gave " << *got;
    EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument) << got.status().ToString();
  }
  // A stride far beyond the extent takes one element.
  EXPECT_EQ(*Infer({"slice", {F({2})}, Slice({0}, {2}, {kHuge}), ""}), "f32[1]");
}

TEST(Infer, BadInputsSayWhatFits) {
  for (const InferCase& c : Bad()) {
    const auto got = Infer(c);
    ASSERT_FALSE(got.ok()) << c.op << " accepted what should give: " << c.expected;
    EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument) << c.op;
    EXPECT_THAT(got.status().message(), testing::HasSubstr(c.expected)) << c.op;
    EXPECT_THAT(got.status().message(), testing::HasSubstr("op '" + c.op + "'"));
  }
}

TEST(Sharding, LettersFitOperandsAndAgreeInExtent) {
  // Letters that may be split name equal extents, except that a reshape's outermost dims of a run
  // share one although their extents differ.
  for (const InferCase& c : Good()) {
    Function f("f");
    Builder b(&f);
    std::vector<ValueId> inputs;
    for (const TensorType& t : c.inputs)
      inputs.push_back(f.AddArgument(t, ArgumentKind::kInput, "x"));
    const std::vector<ValueId> out = b.Add(c.op, inputs, c.attributes);
    std::vector<TensorType> results;
    for (ValueId v : out) results.push_back(f.type(v));
    const OpDef* op = CoreOp(c.op);
    const Node& node = f.node(f.value(out[0]).producer);
    const auto* rule = std::get_if<ShardingFunction>(&op->sharding);
    ASSERT_NE(rule, nullptr) << c.op;
    const ShardingFactors factors = (*rule)(c.inputs, results, node.attributes);
    ASSERT_EQ(factors.inputs.size(), c.inputs.size()) << c.op;
    ASSERT_EQ(factors.outputs.size(), results.size()) << c.op;
    std::map<char, int64_t> extents;
    auto check = [&](const std::string& letters, const TensorType& type) {
      ASSERT_EQ(static_cast<int>(letters.size()), type.rank()) << c.op << " " << letters;
      for (size_t d = 0; d < letters.size(); ++d) {
        if (factors.replicated.find(letters[d]) != std::string::npos || c.op == "reshape") continue;
        const auto [at, fresh] = extents.try_emplace(letters[d], type.dims[d]);
        EXPECT_EQ(at->second, type.dims[d]) << c.op << " letter " << letters[d];
      }
    };
    for (size_t i = 0; i < c.inputs.size(); ++i) check(factors.inputs[i], c.inputs[i]);
    for (size_t i = 0; i < results.size(); ++i) check(factors.outputs[i], results[i]);
    const OpCost cost = op->cost(c.inputs, results, node.attributes);
    EXPECT_GE(cost.flops, 0) << c.op;
    EXPECT_GE(cost.bytes, 0) << c.op;
  }
}

TEST(Cost, CountsOperationsAndBytes) {
  const std::vector<TensorType> in = {F({2, 3}), F({3, 5})};
  const std::vector<TensorType> out = {F({2, 5})};
  const OpCost dot = CoreOp("dot")->cost(in, out, {{"spec", std::string("mk,kn->mn")}});
  EXPECT_EQ(dot.flops, 2 * 2 * 3 * 5);
  EXPECT_EQ(dot.bytes, 4 * (6 + 15 + 10));
  const std::vector<TensorType> conv_in = {F({1, 4, 5}), F({6, 2, 3})};
  const std::vector<TensorType> conv_out = {F({1, 6, 3})};
  EXPECT_EQ(CoreOp("conv")->cost(conv_in, conv_out, {}).flops, 2 * 2 * 3 * 18);
}

}  // namespace
}  // namespace hyper::ir
