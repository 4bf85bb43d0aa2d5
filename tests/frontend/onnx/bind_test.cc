// Inputs that get their value at compile time (model.bind).
#include <limits>

#include "frontend/onnx/inspect.h"
#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const char* const kReshape = R"(g (float[N, 6] x, int64[R] shape) => (float[a, b] y) {
  y = Reshape(x, shape) })";

ir::HostTensor Ints(std::vector<int64_t> values) {
  const auto n = static_cast<int64_t>(values.size());
  return ir::HostTensor::FromVector(ir::DType::kI64, {n}, values);
}

ImportOptions Bound(const std::string& name, ir::HostTensor value) {
  ImportOptions options;
  options.dims = {{"N", 2}};
  options.bind[name] = {std::move(value), {"s.yaml", 3, 9}};
  return options;
}

TEST(Bind, AnInputThatDecidesAShapeIsNoDataThen) {
  const auto model = MustLoad(GraphModel(kReshape));
  const ImportedModel imported = MustImport(*model, Bound("shape", Ints({4, -1})));
  EXPECT_THAT(imported.inputs, ElementsAre("x"));
  const ir::Function& eval = *imported.forward.module.Find("eval");
  EXPECT_THAT(eval.type(eval.results()[0].value).dims, ElementsAre(4, 3));
}

TEST(Bind, TrainingAndForwardAlike) {
  const auto model = MustLoad(GraphModel(R"(g (float[2, 6] x, int64[2] shape) => (float y)
    <float[6, 1] w = {1, 2, 3, 4, 5, 6}> {
      h = MatMul(x, w) r = Reshape(h, shape) y = ReduceSum <keepdims = 0> (r) })"));
  ImportOptions options = Bound("shape", Ints({1, 2}));
  options.dims.clear();
  options.training = true;
  options.losses.push_back({.prediction = "y"});
  const ImportedModel imported = MustImport(*model, options);
  for (const char* function : {"step", "eval"}) {
    int inputs = 0;
    for (const ir::Argument& a : imported.forward.module.Find(function)->arguments()) {
      inputs += a.kind == ir::ArgumentKind::kInput;
    }
    EXPECT_EQ(inputs, 1) << function;
  }
}

TEST(Bind, ValuesTakeTheInputsElementType) {
  const auto model = MustLoad(GraphModel(R"(g (float[2] x, float s, int32[2] k, bool c, float16 h)
    => (float[2] y, int32[2] i, bool d, float16 e) {
      y = Mul(x, s) i = Identity(k) d = Identity(c) e = Identity(h) })"));
  ImportOptions options;
  options.bind["s"] = {ir::HostTensor::ScalarI64(3), {}};
  options.bind["k"] = {Ints({1, -2}), {}};
  options.bind["h"] = {ir::HostTensor::FromVector<double>(ir::DType::kF64, {}, {0.5}), {}};
  options.bind["c"] = {ir::HostTensor::FromVector<uint8_t>(ir::DType::kBool, {}, {1}), {}};
  const auto results =
      Evaluated(MustImport(*model, options), "eval",
                {{"x", ir::HostTensor::FromVector<float>(ir::DType::kF32, {2}, {1, 2})}});
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].ElementAsDouble(1), 6);
  EXPECT_EQ(results[1].ElementAsInt(1), -2);
  EXPECT_EQ(results[2].ElementAsInt(0), 1);
  EXPECT_EQ(results[3].ElementAsDouble(0), 0.5);
  // In double precision nothing is rounded on the way.
  options.double_precision = true;
  options.bind["s"] = {ir::HostTensor::FromVector<double>(ir::DType::kF64, {}, {0.1}), {}};
  const auto exact =
      Evaluated(MustImport(*model, options), "eval",
                {{"x", ir::HostTensor::FromVector<double>(ir::DType::kF64, {2}, {1, 1})}});
  EXPECT_EQ(exact[0].ElementAsDouble(0), 0.1);
}

TEST(Bind, ShapesOfValuesBindDims) {
  const auto model = MustLoad(
      GraphModel("g (float[N, 6] x, int64[R] shape, float[R] z) => (float[a] y, float[R] u) {"
                 " y = Reshape(x, shape) u = Relu(z) }"));
  const ImportedModel imported = MustImport(*model, Bound("shape", Ints({12})));
  const ir::Function& eval = *imported.forward.module.Find("eval");
  EXPECT_THAT(eval.type(eval.results()[1].value).dims, ElementsAre(1));
  ImportOptions options = Bound("shape", Ints({12}));
  options.dims["R"] = 2;
  EXPECT_THAT(RefuseImport(*model, options),
              HasSubstr("s.yaml:3:9: error: 'shape' is bound to a value of shape [1], but its dim "
                        "'R' is 2 by model.dims"));
}

TEST(Bind, WrongNamesTypesAndShapes) {
  const auto model = MustLoad(GraphModel(R"(g (float[2, 6] x, int64[2] shape) => (float[a, b] y)
    <float[6] w = {1, 2, 3, 4, 5, 6}> { h = Mul(x, w) y = Reshape(h, shape) })"));
  const auto refusal = [&](const std::string& name, ir::HostTensor value) {
    ImportOptions options = Bound(name, std::move(value));
    options.dims.clear();
    return RefuseImport(*model, options);
  };
  EXPECT_THAT(refusal("shap", Ints({3, 4})),
              AllOf(HasSubstr("s.yaml:3:9: error: the model has no input 'shap' to bind; there are "
                              "x, shape"),
                    HasSubstr("did you mean 'shape'?")));
  EXPECT_THAT(refusal("w", Ints({1, 2, 3, 4, 5, 6})),
              HasSubstr("'w' has a value in the model; what can be bound are inputs without one"));
  EXPECT_THAT(refusal("shape", Ints({3, 4, 1})),
              AllOf(HasSubstr("s.yaml:3:9: error: 'shape' is bound to i64[3]; the input is i64[2]"),
                    Not(HasSubstr("compile time"))));
  EXPECT_THAT(refusal("shape", ir::HostTensor::FromVector<double>(ir::DType::kF64, {2}, {3, 4})),
              HasSubstr("'shape' is bound to f64[2]; the input is i64[2]"));
  EXPECT_THAT(refusal("x", ir::HostTensor::FromVector<uint8_t>(ir::DType::kBool, {2, 6},
                                                               std::vector<uint8_t>(12))),
              HasSubstr("'x' is bound to bool[2,6]; the input is f32[2,6]"));
  const auto narrow = MustLoad(GraphModel("g (int8[1] k) => (int8[1] y) { y = Identity(k) }"));
  ImportOptions options;
  options.bind["k"] = {Ints({200}), {}};
  EXPECT_THAT(RefuseImport(*narrow, options),
              HasSubstr("'k' is bound to i64[1] with the element 200; the input is i8[1]"));
}

TEST(Bind, RefusalsSayWhatCanBeBound) {
  const auto model = MustLoad(GraphModel(R"(g (float[2, 6] x, int64[1] rows, bool c) =>
    (float[a, b] y, float[p, q] z) <int64[1] rest = {-1}> {
      shape = Concat <axis = 0> (rows, rest) y = Reshape(x, shape)
      z = If (c) <then_branch = t () => (float[p, q] t) { t = Relu(x) },
                  else_branch = e () => (float[p, q] e) { e = Neg(x) }> })"));
  EXPECT_THAT(RefuseImport(*model, {}),
              AllOf(HasSubstr("bind the input 'rows' to a value: model.bind: {rows: ...}"),
                    HasSubstr("bind the input 'c' to a value: model.bind: {c: ...}")));
  Diagnostics diagnostics;
  std::set<std::string> undecided;
  EXPECT_FALSE(Import(*model, {}, &diagnostics, &undecided).ok());
  EXPECT_THAT(undecided, ElementsAre("c", "rows"));
  const std::string report = ReportText(BuildReport(*model, {}));
  EXPECT_THAT(report, HasSubstr("int64[1]; decides shapes or branches: give it a value under "
                                "model.bind"));
  EXPECT_THAT(ReportJson(BuildReport(*model, {})), HasSubstr("\"bind\": true"));
  ImportOptions options;
  options.bind["rows"] = {Ints({3}), {}};
  options.bind["c"] = {ir::HostTensor::FromVector<uint8_t>(ir::DType::kBool, {}, {0}), {}};
  const auto results = Evaluated(MustImport(*model, options), "eval",
                                 {{"x", ir::HostTensor::FromVector<float>(
                                            ir::DType::kF32, {2, 6}, std::vector<float>(12, 1))}});
  EXPECT_THAT(results[0].type().dims, ElementsAre(3, 4));
  EXPECT_EQ(results[1].ElementAsDouble(0), -1);
}

// Read where a value is needed at compile time: known without any dim.
TEST(Bind, InspectTellsWithoutShapes) {
  const ModelReport report = BuildReport(*MustLoad(GraphModel(kReshape)), {});
  EXPECT_FALSE(report.inputs[0].bind);
  EXPECT_TRUE(report.inputs[1].bind);
}

}  // namespace
}  // namespace hyper::onnx_frontend
