// Text form: round trips, hostile text, the verifier on IR that no text can express.
#include <cstring>
#include <random>

#include "gtest/gtest.h"
#include "ir/builder.h"
#include "ir/pass.h"
#include "ir/text.h"

namespace hyper::ir {
namespace {

constexpr std::string_view kModule = R"(module @"odd name\n\"x\"" {
  tensor parameter "conv1.weight": f32[8,1,3,3] alias "conv1"
  tensor state "bn.mean": f32[8]
  func @step(
      %image: f32[16,1,28,28] input "image",
      %conv1.weight: f32[8,1,3,3] parameter "conv1.weight",
      %conv1.weight#1: f32[8,1,3,3] gradient "conv1.weight",
      %conv1.weight#2: f32[8,1,3,3] optimizer "conv1.weight" slot "m",
      %0: f32[8] state "bn:mean",
      %1: f32[8] "other name" frozen "bn:mean",
      %rng: i64[3] rng "rng") {
    %/conv1/Conv_output_0: f32[16,8,26,26] = conv(%image, %conv1.weight) {dilations = [1,1], groups = 1, pads_high = [0,0], pads_low = [0,0], strides = [1,1]} op 3 from "/conv1/Conv"
    %2: f32[16,8,13,13] "pool\x00\xff:0", %3: u8[16,8,13,13] = max_pool(%/conv1/Conv_output_0) {dilations = [1,1], kernel = [2,2], pads_high = [0,0], pads_low = [0,0], strides = [2,2]}
    %4: f32[16,8,13,13] = map(%2, %2) {expr = <t0 = exp(x0); mul(t0, add(t0, f32(-1e-05)))>}
    %5: f32[3] = constant() {value = f32[3] [nan, -inf, 0.1]}
    %6: f32[2] = constant() {value = f32[2] hex "0000c0ff0000807f"}
    %7: u64[1] = constant() {value = u64[1] [18446744073709551615]}
    %8: bool[2] = constant() {value = bool[2] [0, 1]}
    %9: i32[0] = constant() {value = i32[0] []}
    %10: u8[17] = constant() {value = u8[17] hex "000102030405060708090a0b0c0d0e0f10"}
    %11: f16[2] = constant() {value = f16[2] [65504, 6e-08]}
    %12: f32[8,1,3,3] = conv_grad_weight(%/conv1/Conv_output_0, %image) {dilations = [1,1], groups = 1, pads_high = [0,0], pads_low = [0,0], strides = [1,1], weight_shape = [8,1,3,3]} role weight_grad op 3 from "/conv1/Conv"
    %13: f32[8,1,3,3] = accumulate(%conv1.weight#1, %12) role weight_grad
    return
      %4 as "out",
      %13 as "conv1.weight" alias 2
  }
  func @empty() {
    return
  }
}
)";

TEST(Text, RoundTrip) {
  const auto module = Parse(kModule);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  std::string expected(kModule);
  // The least f16 is written with the digits of its f32 value.
  const size_t at = expected.find("6e-08");
  expected.replace(at, 5, "5.9604645e-08");
  EXPECT_EQ(Print(*module), expected);
  EXPECT_EQ(module->name, "odd name\n\"x\"");
  const Function* f = module->Find("step");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->value(f->arguments()[4].value).name, "bn:mean");
  EXPECT_EQ(f->value(f->arguments()[5].value).name, "other name");
  EXPECT_EQ(f->value(f->arguments()[2].value).name, "conv1.weight");
  const Node& pool = f->node(f->order()[1]);
  EXPECT_EQ(f->value(pool.outputs[0]).name, std::string("pool\0\xff:0", 8));
}

TEST(Text, ConstantsKeepTheirBits) {
  std::mt19937 random(1);
  for (DType dtype :
       {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8, DType::kI16, DType::kI32,
        DType::kI64, DType::kU8, DType::kU16, DType::kU32, DType::kU64}) {
    for (int64_t count : {1, 16, 17}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<std::byte> data(static_cast<size_t>(count * DTypeBytes(dtype)));
        for (std::byte& b : data) b = static_cast<std::byte>(random());
        const HostTensor tensor({dtype, {count}}, data);
        Module module;
        Function& f = module.functions.emplace_back("f");
        Builder b(&f);
        f.AddResult(b.Constant(tensor), "y");
        const std::string text = Print(module);
        const auto again = Parse(text);
        ASSERT_TRUE(again.ok()) << again.status().ToString();
        const Function& g = again->functions[0];
        EXPECT_EQ(g.node(g.order()[0]).attributes.Tensor("value"), tensor) << text;
      }
    }
  }
}

TEST(Text, TypesMayBeLeftOut) {
  const auto module = Parse(
      "func @f(%x: f32[2,3]) { %y = transpose(%x) {perm = [1,0]}\n"
      "return %y as \"y\" } // done");
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const Function& f = module->functions[0];
  EXPECT_EQ(f.type(f.results()[0].value).ToString(), "f32[3,2]");
}

TEST(Text, ErrorsNameThePlace) {
  const auto bad = Parse("func @f(%x: f32[2]) {\n  %y = map(%x) {expr = <exp(x1)>}\n}", "a.hir");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("a.hir:2:24: error:"), std::string::npos)
      << bad.status().message();
  EXPECT_NE(bad.status().message().find("no input 'x1'"), std::string::npos);
}

// Every mutation gives a module or an error; what parses prints and parses again.
TEST(Text, HostileTextIsRefused) {
  std::mt19937 random(7);
  const std::string base(kModule);
  const std::string_view pieces[] = {
      "%",       "\"",      "[", "]",   "{", "}", "-1", "99999999999999999999", "<", ">", "f32[1]",
      "hex",     "(",       ")", "\\x", "@", "#", "//", "4611686018427387904",  "0", ",", "=",
      "alias 9", "t0 = x0;"};
  int parsed = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = base;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int e = 0; e < edits; ++e) {
      const size_t at = random() % text.size();
      switch (random() % 5) {
        case 0: text.erase(at, 1 + random() % 20); break;
        case 1: text[at] = static_cast<char>(random()); break;
        case 2: text.insert(at, pieces[random() % std::size(pieces)]); break;
        case 3: text.resize(at + 1); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 60));
      }
      if (text.empty()) text = " ";
    }
    const auto module = Parse(text);
    if (!module.ok()) continue;
    ++parsed;
    const std::string printed = Print(*module);
    const auto again = Parse(printed);
    ASSERT_TRUE(again.ok()) << again.status().ToString() << "\n" << printed;
    ASSERT_EQ(Print(*again), printed);
  }
  EXPECT_GT(parsed, 20);  // some edits are harmless
}

TEST(Text, DeepAndWideExpressions) {
  std::string nested = "x0";
  for (int i = 0; i < 5000; ++i) nested = "neg(" + nested + ")";
  const auto bad = Parse("func @f(%x: f32[2]) { %y = map(%x) {expr = <" + nested + ">} return }");
  EXPECT_FALSE(bad.ok());
  // A long chain is printed in pieces, and a shared value once.
  ExprBuilder e;
  int v = e.Input(0, DType::kF32);
  for (int i = 0; i < 2000; ++i) v = e.Unary(i % 2 == 0 ? ScalarOp::kSin : ScalarOp::kExp, v);
  for (int i = 0; i < 100; ++i) v = e.Binary(ScalarOp::kAdd, v, v);
  const Expr expr = e.Build(v);
  const std::string text = expr.ToString();
  EXPECT_LT(text.size(), 40000u);
  const DType input = DType::kF32;
  const auto again = Expr::Parse(text, std::span(&input, 1));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(*again, expr);
}

Function Simple() {
  Function f("f");
  const ValueId x = f.AddArgument({DType::kF32, {2, 3}}, ArgumentKind::kInput, "x");
  Builder b(&f);
  const ValueId y = b.Unary(ScalarOp::kExp, x);
  f.AddResult(b.Transpose(y, {1, 0}), "y");
  return f;
}

void ExpectBroken(const Function& f, std::string_view text) {
  const Status status = Verify(f);
  ASSERT_FALSE(status.ok()) << text;
  EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
}

TEST(Verifier, RefusesBrokenFunctions) {
  ASSERT_TRUE(Verify(Simple()).ok());
  Function f = Simple();
  f.SetOrder({f.order()[1], f.order()[0]});
  ExpectBroken(f, "not defined before its use");
  f = Simple();
  f.SetOrder({f.order()[0], f.order()[0], f.order()[1]});
  ExpectBroken(f, "twice in the order");
  f = Simple();
  f.value(f.node(f.order()[1]).outputs[0]).type.dims = {2, 3};
  ExpectBroken(f, "inferred f32[3,2]");
  f = Simple();
  f.node(f.order()[1]).attributes = {};
  ExpectBroken(f, "attribute 'perm' is not set");
  f = Simple();
  f.node(f.order()[1]).attributes.Set("perm", int64_t{1});
  ExpectBroken(f, "is a int, expected a dims");
  f = Simple();
  f.node(f.order()[1]).attributes.Set("other", int64_t{1});
  ExpectBroken(f, "no attribute 'other'");
  f = Simple();
  f.node(f.order()[0]).inputs.clear();
  ExpectBroken(f, "has 0 inputs");
  f = Simple();
  f.node(f.order()[0]).inputs[0] = ValueId{99};
  ExpectBroken(f, "not defined before its use");
  f = Simple();
  f.mutable_results()[0].alias_argument = 5;
  ExpectBroken(f, "aliases argument 5 of 1");
  f = Simple();
  f.RemoveNode(f.order()[0]);
  ExpectBroken(f, "not defined before its use");
  f = Simple();
  f.AddArgument({DType::kF32, {2}}, ArgumentKind::kInput, "x");
  ExpectBroken(f, "occurs twice");
  // Broken functions can still be printed, to look at them.
  EXPECT_NE(Print(f).find("func @f"), std::string::npos);
}

TEST(Verifier, RefusesBrokenModules) {
  Module m;
  m.functions.push_back(Simple());
  m.functions.push_back(Simple());
  EXPECT_FALSE(Verify(m).ok());
  m.functions.pop_back();
  m.tensors.push_back({"w", "", {DType::kF32, {2}}, ArgumentKind::kInput, {}});
  EXPECT_FALSE(Verify(m).ok());
  m.tensors[0].kind = ArgumentKind::kParameter;
  EXPECT_TRUE(Verify(m).ok());
  m.functions[0].AddArgument({DType::kF32, {3}}, ArgumentKind::kParameter, "w");
  EXPECT_FALSE(Verify(m).ok());
}

TEST(Pipeline, OptionsLimitsAndTraces) {
  auto run = [](std::string_view pipeline, PipelineOptions options = {},
                std::vector<PassTrace>* trace = nullptr) {
    Module m;
    m.functions.push_back(Simple());
    return RunPipeline(pipeline, m, options, trace);
  };
  std::vector<PassTrace> trace;
  std::vector<std::string> printed;
  PipelineOptions options;
  options.print_after = {"cse"};
  options.print = [&](std::string_view pass, const std::string& text) {
    printed.push_back(std::string(pass));
    EXPECT_NE(text.find("transpose"), std::string::npos);
  };
  ASSERT_TRUE(run(" canonicalize{ iterations = 3, fold_limit=0 } , cse,dce", options, &trace).ok());
  ASSERT_EQ(trace.size(), 3u);
  EXPECT_EQ(trace[0].pass, "canonicalize");
  EXPECT_EQ(trace[2].statistics.at("nodes removed"), 0);
  EXPECT_EQ(printed, std::vector<std::string>{"cse"});
  trace.clear();
  options.pass_limit = 1;
  ASSERT_TRUE(run("cse,dce", options, &trace).ok());
  EXPECT_EQ(trace.size(), 1u);
  EXPECT_TRUE(run("").ok());
  EXPECT_NE(run("canonicalize{iteration=3}").message().find("did you mean 'iterations'"),
            std::string::npos);
  EXPECT_FALSE(run("canonicalize{iterations=many}").ok());
  EXPECT_FALSE(run("canonicalize{iterations").ok());
  EXPECT_FALSE(run("cse dce").ok());
  options.print_after = {"cs"};
  EXPECT_FALSE(run("cse", options).ok());
}

}  // namespace
}  // namespace hyper::ir
