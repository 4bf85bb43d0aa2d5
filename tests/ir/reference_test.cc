// Reference kernels against values worked out by hand, zero extents and odd shapes included.
#include <cmath>

#include "ir/op_def.h"
#include "tests/ir/reference_support.h"

namespace hyper::ir {
namespace {

const double kNan = std::nan("");

TEST(Reference, EveryOpHasAKernel) {
  ASSERT_GT(CoreOps().ops().size(), 45u);
  for (const OpDef* op : CoreOps().ops()) EXPECT_TRUE(HasReference(op->name)) << op->name;
  EXPECT_FALSE(HasReference("no_such_op"));
}

TEST(Reference, Map) {
  ExpectValues(EvalOp("map(%a, %b) {expr = <max(add(x0, x1), f32(0))>}",
                      {F32({3}, {1, -2, 3}), F32({3}, {1, 1, -5})}),
               {3}, {2, 0, 0});
  ExpectValues(EvalOp("map(%a) {expr = <cast.i64(x0)>}", {F32({3}, {1.9F, -1.9F, 7})}), {3},
               {1, -1, 7});
  ExpectValues(
      EvalOp("map(%a) {expr = <select(lt(x0, i64(2)), i64(10), x0)>}", {I64({3}, {1, 2, 3})}), {3},
      {10, 2, 3});
  // Longer than one block, with a rest.
  std::vector<float> x(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const HostTensor y = EvalOp("map(%a) {expr = <sqrt(mul(x0, x0))>}", {F32({1000}, x)});
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(y.ElementAsDouble(i), static_cast<double>(i));
  ExpectValues(EvalOp("map(%a) {expr = <exp(x0)>}", {F32({0, 3}, {})}), {0, 3}, {});
  // Each operator rounds to its own type: in bf16 256 + 1 is 256.
  ExpectValues(
      EvalOp("map(%a) {expr = <cast.f32(add(cast.bf16(x0), bf16(1)))>}", {F32({2}, {256, 2})}), {2},
      {256, 3}, 0);
}

TEST(Reference, DataMovement) {
  const HostTensor x = F32({2, 3}, {1, 2, 3, 4, 5, 6});
  ExpectValues(EvalOp("broadcast(%a) {shape = [2,2,3], dims = [0,2]}", {x}), {2, 2, 3},
               {1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  ExpectValues(EvalOp("broadcast(%a) {shape = [2,3], dims = [0,1]}", {F32({2, 1}, {7, 8})}), {2, 3},
               {7, 7, 7, 8, 8, 8});
  ExpectValues(EvalOp("reshape(%a) {shape = [3,2]}", {x}), {3, 2}, {1, 2, 3, 4, 5, 6});
  ExpectValues(EvalOp("transpose(%a) {perm = [1,0]}", {x}), {3, 2}, {1, 4, 2, 5, 3, 6});
  ExpectValues(EvalOp("slice(%a) {starts = [0,0], limits = [2,3], strides = [1,2]}", {x}), {2, 2},
               {1, 3, 4, 6});
  ExpectValues(EvalOp("slice(%a) {starts = [1,3], limits = [2,3], strides = [1,1]}", {x}), {1, 0},
               {});
  ExpectValues(EvalOp("reverse(%a) {axes = [1]}", {x}), {2, 3}, {3, 2, 1, 6, 5, 4});
  ExpectValues(EvalOp("concat(%a, %b) {axis = 1}", {x, F32({2, 1}, {9, 8})}), {2, 4},
               {1, 2, 3, 9, 4, 5, 6, 8});
  ExpectValues(EvalOp("concat(%a, %b) {axis = 0}", {x, F32({0, 3}, {})}), {2, 3},
               {1, 2, 3, 4, 5, 6});
  ExpectValues(EvalOp("copy(%a)", {x}), {2, 3}, {1, 2, 3, 4, 5, 6});
  ExpectValues(EvalOp("iota() {shape = [2,3], axis = 1, dtype = f32}", {}), {2, 3},
               {0, 1, 2, 0, 1, 2});
  ExpectValues(EvalOp("iota() {shape = [2,2], axis = 0, dtype = i32}", {}), {2, 2}, {0, 0, 1, 1});
  ExpectValues(EvalOp("transpose(%a) {perm = [1,0]}", {F32({0, 3}, {})}), {3, 0}, {});
}

TEST(Reference, Pad) {
  const HostTensor x = F32({3}, {1, 2, 3});
  ExpectValues(EvalOp("pad(%a) {low = [1], high = [2], interior = [1], value = 9.0, "
                      "mode = \"constant\"}",
                      {x}),
               {8}, {9, 1, 9, 2, 9, 3, 9, 9});
  ExpectValues(EvalOp("pad(%a) {low = [-1], high = [1], interior = [0], value = 0.0, "
                      "mode = \"constant\"}",
                      {x}),
               {3}, {2, 3, 0});
  ExpectValues(EvalOp("pad(%a) {low = [2], high = [1], interior = [0], value = 0.0, "
                      "mode = \"edge\"}",
                      {x}),
               {6}, {1, 1, 1, 2, 3, 3});
  ExpectValues(EvalOp("pad(%a) {low = [2], high = [1], interior = [0], value = 0.0, "
                      "mode = \"reflect\"}",
                      {x}),
               {6}, {3, 2, 1, 2, 3, 2});
}

TEST(Reference, Reductions) {
  const HostTensor x = F32({2, 3}, {1, 5, 3, 4, 2, 6});
  ExpectValues(EvalOp("reduce(%a) {kind = \"sum\", axes = [1]}", {x}), {2}, {9, 12});
  ExpectValues(EvalOp("reduce(%a) {kind = \"sum\", axes = [0]}", {x}), {3}, {5, 7, 9});
  ExpectValues(EvalOp("reduce(%a) {kind = \"max\", axes = [0,1]}", {x}), {}, {6});
  ExpectValues(EvalOp("reduce(%a) {kind = \"min\", axes = [1]}", {x}), {2}, {1, 2});
  ExpectValues(EvalOp("reduce(%a) {kind = \"prod\", axes = [1]}", {x}), {2}, {15, 48});
  ExpectValues(EvalOp("reduce(%a) {kind = \"sum\", axes = [0]}", {F32({0, 2}, {})}), {2}, {0, 0});
  ExpectValues(
      EvalOp("reduce(%a) {kind = \"max\", axes = [1]}", {F32({2, 2}, {1, std::nanf(""), -1, -2})}),
      {2}, {kNan, -1});
  ExpectValues(EvalOp("reduce(%a) {kind = \"sum\", axes = [0]}", {I64({3}, {1, -2, 5})}), {}, {4});
  const HostTensor b = HostTensor::FromVector<uint8_t>(DType::kBool, {2, 2}, {1, 0, 1, 1});
  ExpectValues(EvalOp("reduce(%a) {kind = \"and\", axes = [1]}", {b}), {2}, {0, 1});
  ExpectValues(EvalOp("reduce(%a) {kind = \"or\", axes = [0]}", {b}), {2}, {1, 1});
  // Sums of f32 are formed in double: 2^24 + 1 + 1 does not get stuck.
  ExpectValues(EvalOp("reduce(%a) {kind = \"sum\", axes = [0]}", {F32({3}, {16777216, 1, 1})}), {},
               {16777218}, 0);
  const HostTensor t = F32({4}, {2, 7, 7, 1});
  ExpectValues(EvalOp("arg_reduce(%a) {kind = \"max\", axis = 0, last = false}", {t}), {}, {1});
  ExpectValues(EvalOp("arg_reduce(%a) {kind = \"max\", axis = 0, last = true}", {t}), {}, {2});
  ExpectValues(EvalOp("arg_reduce(%a) {kind = \"min\", axis = 1, last = false}", {x}), {2}, {0, 1});
  ExpectValues(EvalOp("cumsum(%a) {axis = 1, exclusive = false, reverse = false}", {x}), {2, 3},
               {1, 6, 9, 4, 6, 12});
  ExpectValues(EvalOp("cumsum(%a) {axis = 1, exclusive = true, reverse = true}", {x}), {2, 3},
               {8, 3, 0, 8, 6, 0});
  ExpectValues(EvalOp("cumprod(%a) {axis = 1, exclusive = false, reverse = false}", {x}), {2, 3},
               {1, 5, 15, 4, 8, 48});
  ExpectValues(EvalOp("cumprod(%a) {axis = 1, exclusive = true, reverse = true}", {x}), {2, 3},
               {15, 3, 1, 12, 6, 1});
  ExpectValues(
      EvalOp("cumprod(%a) {axis = 0, exclusive = true, reverse = false}", {I64({3}, {2, -3, 5})}),
      {3}, {1, 2, -6});
}

TEST(Reference, Determinants) {
  const auto det = [](const HostTensor& x) {
    return EvalText("%y, %factors, %pivots = det(%a)", {"y"}, {x})[0];
  };
  ExpectValues(det(F32({2, 2, 2}, {1, 2, 3, 4, 0, 1, 1, 0})), {2}, {-2, -1});
  ExpectValues(det(F32({3, 3}, {1, 2, 3, 2, 4, 6, 1, 0, 1})), {}, {0});
  ExpectValues(det(F32({0, 0}, {})), {}, {1});
  // The only zero of the matrix on the diagonal: elimination must swap.
  ExpectValues(det(F32({3, 3}, {0, 2, 1, 1, 0, 1, 2, 1, 0})), {}, {5});
}

TEST(Reference, Dot) {
  const HostTensor a = F32({2, 3}, {1, 2, 3, 4, 5, 6});
  const HostTensor b = F32({3, 2}, {1, 0, 0, 1, 2, 2});
  ExpectValues(EvalOp("dot(%a, %b) {spec = \"mk,kn->mn\"}", {a, b}), {2, 2}, {7, 8, 16, 17});
  ExpectValues(EvalOp("dot(%a, %b) {spec = \"mk,kn->nm\"}", {a, b}), {2, 2}, {7, 16, 8, 17});
  ExpectValues(EvalOp("dot(%a, %b) {spec = \"km,kn->mn\"}", {F32({3, 2}, {1, 4, 2, 5, 3, 6}), b}),
               {2, 2}, {7, 8, 16, 17});
  ExpectValues(EvalOp("dot(%a, %b) {spec = \"bmk,bkn->bmn\"}",
                      {F32({2, 1, 2}, {1, 2, 3, 4}), F32({2, 2, 1}, {1, 1, 2, 2})}),
               {2, 1, 1}, {3, 14});
  ExpectValues(EvalOp("dot(%a, %b) {spec = \"mk,kn->mn\"}", {F32({2, 0}, {}), F32({0, 2}, {})}),
               {2, 2}, {0, 0, 0, 0});
  ExpectValues(EvalOp("dot(%a, %b) {spec = \"m,n->nm\"}", {F32({2}, {1, 2}), F32({3}, {1, 2, 3})}),
               {3, 2}, {1, 2, 2, 4, 3, 6});
  // Longer than a tile of the contracted dim.
  const HostTensor ones = F64({1, 150}, std::vector<double>(150, 1.0));
  ExpectValues(EvalOp("dot(%a, %b) {spec = \"mk,nk->mn\"}", {ones, ones}), {1, 1}, {150});
}

constexpr char kWindow[] =
    "strides = [1,1], pads_low = [1,1], pads_high = [1,1], "
    "dilations = [1,1], groups = 1";

TEST(Reference, Convolution) {
  const HostTensor x = F32({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const HostTensor ones = F32({1, 1, 3, 3}, std::vector<float>(9, 1));
  const std::string w = kWindow;
  ExpectValues(EvalOp("conv(%a, %b) {" + w + "}", {x, ones}), {1, 1, 3, 3},
               {12, 21, 16, 27, 45, 33, 24, 39, 28});
  // Strided, dilated, one-sided padding, not symmetric.
  ExpectValues(EvalOp("conv(%a, %b) {strides = [2,1], pads_low = [0,1], pads_high = [0,0], "
                      "dilations = [1,2], groups = 1}",
                      {x, F32({1, 1, 1, 2}, {10, 1})}),
               {1, 1, 2, 2}, {2, 13, 8, 79});
  // Groups: each output channel sees its own input channel.
  ExpectValues(EvalOp("conv(%a, %b) {strides = [1], pads_low = [0], pads_high = [0], "
                      "dilations = [1], groups = 2}",
                      {F32({1, 2, 2}, {1, 2, 3, 4}), F32({2, 1, 1}, {10, 100})}),
               {1, 2, 2}, {10, 20, 300, 400});
  ExpectValues(EvalOp("conv(%a, %b) {" + w + "}", {F32({0, 1, 3, 3}, {}), ones}), {0, 1, 3, 3}, {});
}

// <g, conv(x, w)> is linear in x and in w: the gradients are its adjoints.
TEST(Reference, ConvolutionGradientsAreAdjoints) {
  auto ramp = [](Dims dims, double a) {
    std::vector<double> v(static_cast<size_t>(ElementCount(dims)));
    for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(a * static_cast<double>(i + 1));
    return F64(std::move(dims), v);
  };
  auto inner = [](const HostTensor& a, const HostTensor& b) {
    double sum = 0;
    for (int64_t i = 0; i < a.type().elements(); ++i) {
      sum += a.ElementAsDouble(i) * b.ElementAsDouble(i);
    }
    return sum;
  };
  struct Case {
    Dims x, w, y;
    std::string attributes;
  };
  const Case cases[] = {
      {{2, 4, 5, 6},
       {6, 2, 3, 2},
       {2, 6, 3, 6},
       "strides = [2,1], pads_low = [1,0], pads_high = [1,2], dilations = [1,2], groups = 2"},
      {{1, 3, 7},
       {2, 3, 3},
       {1, 2, 3},
       "strides = [2], pads_low = [0], pads_high = [0], dilations = [1], groups = 1"},
      {{1, 1, 3, 4, 5},
       {2, 1, 2, 2, 2},
       {1, 2, 2, 3, 4},
       "strides = [1,1,1], pads_low = [0,0,0], pads_high = [0,0,0], dilations = [1,1,1], "
       "groups = 1"},
  };
  for (const Case& c : cases) {
    const HostTensor x = ramp(c.x, 0.7);
    const HostTensor w = ramp(c.w, 1.3);
    const HostTensor g = ramp(c.y, 2.1);
    const double forward = inner(g, EvalOp("conv(%a, %b) {" + c.attributes + "}", {x, w}));
    const std::string a = "{" + c.attributes;
    auto list = [](const Dims& d) { return TensorType{DType::kF32, d}.ToString().substr(3); };
    const HostTensor dx =
        EvalOp("conv_grad_input(%a, %b) " + a + ", input_shape = " + list(c.x) + "}", {g, w});
    const HostTensor dw =
        EvalOp("conv_grad_weight(%a, %b) " + a + ", weight_shape = " + list(c.w) + "}", {g, x});
    EXPECT_NE(forward, 0);
    EXPECT_NEAR(inner(x, dx), forward, 1e-11);
    EXPECT_NEAR(inner(w, dw), forward, 1e-11);
  }
}

TEST(Reference, Pooling) {
  const HostTensor x = F32({1, 1, 3, 3}, {1, 5, 5, 4, 0, 6, 7, 8, 2});
  const std::string a =
      "kernel = [2,2], strides = [1,1], pads_low = [0,0], pads_high = [0,0], "
      "dilations = [1,1]";
  const auto max = EvalText("%y, %i = max_pool(%a) {" + a + "}", {"y", "i"}, {x});
  ExpectValues(max[0], {1, 1, 2, 2}, {5, 6, 8, 8});
  ExpectValues(max[1], {1, 1, 2, 2}, {1, 3, 3, 2});
  EXPECT_EQ(max[1].type().dtype, DType::kU8);
  ExpectValues(EvalOp("max_pool_grad(%a, %b) {" + a + ", input_shape = [1,1,3,3]}",
                      {F32({1, 1, 2, 2}, {1, 2, 3, 4}), max[1]}),
               {1, 1, 3, 3}, {0, 1, 0, 0, 0, 2, 0, 7, 0});
  ExpectValues(EvalOp("avg_pool(%a) {" + a + ", count_include_pad = false}", {x}), {1, 1, 2, 2},
               {2.5, 4, 4.75, 4});
  const std::string p =
      "kernel = [2], strides = [2], pads_low = [1], pads_high = [0], "
      "dilations = [1]";
  const HostTensor line = F32({1, 1, 3}, {2, 4, 6});
  ExpectValues(EvalOp("avg_pool(%a) {" + p + ", count_include_pad = false}", {line}), {1, 1, 2},
               {2, 5});
  ExpectValues(EvalOp("avg_pool(%a) {" + p + ", count_include_pad = true}", {line}), {1, 1, 2},
               {1, 5});
  ExpectValues(EvalOp("avg_pool_grad(%a) {" + p +
                          ", count_include_pad = true, "
                          "input_shape = [1,1,3]}",
                      {F32({1, 1, 2}, {1, 4})}),
               {1, 1, 3}, {0.5, 2, 2});
}

TEST(Reference, Indexing) {
  const HostTensor x = F32({2, 3}, {1, 2, 3, 4, 5, 6});
  ExpectValues(EvalOp("gather(%a, %b) {axis = 1}", {x, I64({2}, {-1, 0})}), {2, 2}, {3, 1, 6, 4});
  ExpectValues(EvalOp("gather(%a, %b) {axis = 0}", {x, I64({}, {1})}), {3}, {4, 5, 6});
  EXPECT_FALSE(TryEvalText("%y = gather(%a, %b) {axis = 0}", {"y"}, {x, I64({1}, {2})}).ok());
  ExpectValues(EvalOp("scatter_add(%a, %b) {axis = 0, size = 3}",
                      {I64({3}, {0, 2, 0}), F32({3, 2}, {1, 2, 3, 4, 5, 6})}),
               {3, 2}, {6, 8, 0, 0, 3, 4});
  ExpectValues(EvalOp("gather_elements(%a, %b) {axis = 1}", {x, I64({2, 2}, {0, 2, -1, 0})}),
               {2, 2}, {1, 3, 6, 4});
  ExpectValues(EvalOp("scatter_add_elements(%a, %b) {axis = 1, size = 3}",
                      {I64({1, 3}, {2, 2, 0}), F32({1, 3}, {1, 2, 3})}),
               {1, 3}, {3, 0, 3});
  const auto scattered = [&](const std::string& reduction) {
    return EvalOp("scatter_elements(%a, %b, %c) {axis = 1, reduction = \"" + reduction + "\"}",
                  {x, I64({1, 3}, {2, -1, 0}), F32({1, 3}, {9, 2, -2})});
  };
  ExpectValues(scattered("none"), {2, 3}, {-2, 2, 2, 4, 5, 6});
  ExpectValues(scattered("sum"), {2, 3}, {-1, 2, 14, 4, 5, 6});
  ExpectValues(scattered("prod"), {2, 3}, {-2, 2, 54, 4, 5, 6});
  ExpectValues(scattered("max"), {2, 3}, {1, 2, 9, 4, 5, 6});
  ExpectValues(scattered("min"), {2, 3}, {-2, 2, 2, 4, 5, 6});
  const auto top = EvalText("%v, %i = top_k(%a) {k = 2, axis = 0, largest = true}", {"v", "i"},
                            {F32({4}, {2, 7, 7, 1})});
  ExpectValues(top[0], {2}, {7, 7});
  ExpectValues(top[1], {2}, {1, 2});
  const auto low =
      EvalText("%v, %i = top_k(%a) {k = 1, axis = 1, largest = false}", {"v", "i"}, {x});
  ExpectValues(low[0], {2, 1}, {1, 4});
  ExpectValues(low[1], {2, 1}, {0, 0});
}

TEST(Reference, HalfTypesRoundOnce) {
  // 2048 + 1 + 1: formed in more precision, rounded to f16 at the end.
  ExpectValues(EvalText("%h = map(%a) {expr = <cast.f16(x0)>}\n"
                        "%s = reduce(%h) {kind = \"sum\", axes = [0]}",
                        {"s"}, {F32({3}, {2048, 1, 1})})[0],
               {}, {2050}, 0);
}

TEST(Reference, AccumulateAddsToTheOutput) {
  const TensorType type{DType::kF32, {1, 1}};
  const float a = 3;
  const float b = 4;
  float y = 100;
  const ConstTensorRef in[2] = {{&type, reinterpret_cast<const std::byte*>(&a)},
                                {&type, reinterpret_cast<const std::byte*>(&b)}};
  const TensorRef out[1] = {{&type, reinterpret_cast<std::byte*>(&y)}};
  const Attributes attributes{{"spec", std::string("mk,kn->mn")}};
  ASSERT_TRUE(RunReference(*CoreOp("dot"), attributes, 0, in, out, true).ok());
  EXPECT_EQ(y, 112);
  ASSERT_TRUE(RunReference(*CoreOp("dot"), attributes, 0, in, out).ok());
  EXPECT_EQ(y, 12);
  // An op without the fact in its record refuses.
  const Attributes none;
  EXPECT_EQ(RunReference(*CoreOp("copy"), none, 0, std::span(in, 1), out, true).code(),
            StatusCode::kInternal);
}

TEST(Reference, EvaluateChecksItsArguments) {
  const auto module = Parse("func @f(%x: f32[2]) { return %x as \"y\" }");
  ASSERT_TRUE(module.ok());
  const Function& f = module->functions[0];
  EXPECT_FALSE(Evaluate(f, {}).ok());
  const HostTensor wrong = F32({3}, {1, 2, 3});
  EXPECT_FALSE(Evaluate(f, std::span(&wrong, 1)).ok());
}

}  // namespace
}  // namespace hyper::ir
