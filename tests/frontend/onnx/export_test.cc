#include "frontend/onnx/export.h"

#include "frontend/onnx/inspect.h"
#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::HasSubstr;

constexpr const char* kModel = R"(g (float[4,2] x) => (float[4,2] y)
  <float[2] s = {1, 1}, float[2] zero = {0, 0}, float[2,2] w = {1, 2, 3, 4}, float ratio = {0.5},
      bool train = {1}> {
    bias2 = Identity(s)
    k = Constant <value: tensor = float[2,2] {1, 0, 0, 1}> ()
    a = MatMul(x, w) b, m, v = BatchNormalization <training_mode = 1> (a, s, zero, zero, s)
    c, mask = Dropout(b, ratio, train) d = MatMul(c, k) y = Mul(d, bias2) })";

std::map<std::string, ir::HostTensor> Values(const ImportedModel& model, float add) {
  std::map<std::string, ir::HostTensor> values;
  float next = add;
  for (const ir::PersistentTensor& t : model.forward.module.tensors) {
    std::vector<double> data;
    for (int64_t i = 0; i < t.type.elements(); ++i) data.push_back(next += 0.25F);
    values[t.name] = ir::HostTensor::FromVector(ir::DType::kF64, t.type.dims, data);
  }
  return values;
}

TEST(Export, WritesTrainedValuesIntoTheOriginalGraph) {
  TempDir dir;
  const auto model = MustLoad(GraphModel(kModel));
  ImportOptions options;
  options.training = true;
  options.losses.push_back({ir::LossKind::kMse, "y", "t", std::nullopt, 1});
  const ImportedModel imported = MustImport(*model, options);
  auto stripped = StripWeights(*model, imported.plan);
  ASSERT_TRUE(stripped.ok()) << stripped.status().message();
  const auto values = Values(imported, 1);
  for (int64_t limit : {int64_t{1} << 30, int64_t{0}}) {
    ExportOptions write;
    write.external_above = limit;
    ASSERT_TRUE(ExportTrained(*stripped, values, dir.File("out.onnx"), write).ok());
    Diagnostics diagnostics;
    auto loaded = LoadModel(dir.File("out.onnx"), {}, &diagnostics);
    ASSERT_TRUE(loaded.ok()) << diagnostics.Render();
    for (const auto& node : (*loaded)->graph().node()) {
      EXPECT_NE(node.op_type(), "Identity");
      if (node.op_type() == "BatchNormalization") {
        EXPECT_EQ(node.output_size(), 1);
        for (const auto& a : node.attribute()) EXPECT_NE(a.name(), "training_mode");
      }
      if (node.op_type() == "Dropout") {
        EXPECT_EQ(node.input_size(), 2);
      }
    }
    // The file means what the program computes with the same values.
    ImportedModel with_values = MustImport(*model, options);
    for (ir::PersistentTensor& t : with_values.forward.module.tensors) {
      t.initial = ConvertTensor(values.at(t.name), ir::DType::kF32);
    }
    const ir::HostTensor x =
        ir::HostTensor::FromVector<float>(ir::DType::kF32, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 9});
    const auto want = Evaluated(with_values, "eval", {{"x", x}});
    const auto got = Evaluated(MustImport(**loaded, {}), "eval", {{"x", x}});
    ASSERT_EQ(got.size(), 1u);
    EXPECT_TRUE(got[0] == want[0]);
    EXPECT_EQ((*loaded)->FindTensor("w")->value.type().dtype, ir::DType::kF32);
  }
}

TEST(Export, LargeTensorsGoToAnExternalFile) {
  TempDir dir;
  std::string values;
  for (int i = 0; i < 1024; ++i) values += (i > 0 ? ", " : "") + std::to_string(i % 7);
  const auto model = MustLoad(GraphModel(
      "g (float[2,32] x) => (float[2,32] y) <float[32,32] w = {" + values + "}, float[32] b = {" +
      values.substr(0, 3 * 32 - 2) + "}> { m = MatMul(x, w) y = Add(m, b) }"));
  const ImportedModel imported = MustImport(*model, {});
  const auto stripped = StripWeights(*model, imported.plan);
  ASSERT_TRUE(stripped.ok());
  EXPECT_LT(stripped->size(), 1024u);
  ExportOptions write;
  write.external_above = 0;
  ASSERT_TRUE(ExportTrained(*stripped, Values(imported, 0), dir.File("out.onnx"), write).ok());
  EXPECT_EQ(std::filesystem::file_size(dir.File("out.onnx.data")), 4096u);
  Diagnostics diagnostics;
  auto loaded = LoadModel(dir.File("out.onnx"), {}, &diagnostics);
  ASSERT_TRUE(loaded.ok()) << diagnostics.Render();
  EXPECT_TRUE((*loaded)->has_external_data);
  EXPECT_FLOAT_EQ((*loaded)->FindTensor("w")->value.as<float>()[1], 0.5F);
}

// The function is called once, so that its constant is a weight; where it stands, the calls' graph
// has no place for a value.
TEST(Export, AWeightInsideAFunctionInlinesTheFunctions) {
  TempDir dir;
  const auto model = MustLoad(ParseModel(R"(
<ir_version: 8, opset_import: ["" : 17, "pkg" : 1]>
g (float[4,2] x) => (float[4,2] y) <float[2] s = {1, 2}> { h = Mul(x, s) y = pkg.layer(h) }
<opset_import: ["" : 17], domain: "pkg">
layer (a) => (b) {
  w = Constant <value: tensor = float[2,2] {1, 2, 3, 5}> ()
  b = MatMul(a, w)
})"));
  const ImportedModel imported = MustImport(*model, {});
  const auto inside =
      std::find_if(imported.plan.tensors.begin(), imported.plan.tensors.end(),
                   [](const ParameterDecision& d) { return d.type.rank() == 2 && !d.constant; });
  ASSERT_NE(inside, imported.plan.tensors.end());
  Diagnostics diagnostics;
  const auto stripped = StripWeights(*model, imported.plan, &diagnostics);
  ASSERT_TRUE(stripped.ok()) << stripped.status().message();
  EXPECT_THAT(diagnostics.Render(),
              HasSubstr("functions of this file inlined: '" + inside->name + "'"));
  ASSERT_TRUE(ExportTrained(*stripped, Values(imported, 0), dir.File("out.onnx")).ok());
  Diagnostics loading;
  const auto loaded = LoadModel(dir.File("out.onnx"), {}, &loading);
  ASSERT_TRUE(loaded.ok()) << loading.Render();
  EXPECT_EQ((*loaded)->original->functions_size(), 0);
  // A file without functions gets no such note.
  const auto plain = MustLoad(GraphModel(kModel));
  Diagnostics quiet;
  ASSERT_TRUE(StripWeights(*plain, MustImport(*plain, {}).plan, &quiet).ok());
  EXPECT_TRUE(quiet.items().empty()) << quiet.Render();
}

TEST(Export, MissingAndMisshapenValuesAreNamed) {
  TempDir dir;
  const auto model = MustLoad(GraphModel(kModel));
  const ImportedModel imported = MustImport(*model, {});
  const auto stripped = StripWeights(*model, imported.plan);
  ASSERT_TRUE(stripped.ok());
  auto values = Values(imported, 0);
  values["w"] = ir::HostTensor::Zeros({ir::DType::kF32, {3, 2}});
  EXPECT_THAT(ExportTrained(*stripped, values, dir.File("o.onnx")).message(), HasSubstr("[3,2]"));
  values.erase("w");
  EXPECT_THAT(ExportTrained(*stripped, values, dir.File("o.onnx")).message(),
              HasSubstr("no value for w"));
  EXPECT_FALSE(std::filesystem::exists(dir.File("o.onnx")));
}

TEST(Inspect, ReportsWeightsDimsAndProblems) {
  const auto model =
      MustLoad(GraphModel(R"(g (float[N,4] x) => (float[N,2] y, int64[N,1] best, int64[a,b] where)
    <float[4,2] w = {1,2,3,4,5,6,7,8}> { y = MatMul(x, w) best = ArgMax <axis = 1> (y)
      where = NonZero(y) })"));
  const ModelReport report = BuildReport(*model, {});
  ASSERT_EQ(report.dims.size(), 1u);
  EXPECT_EQ(report.dims[0].name, "N");
  EXPECT_EQ(report.trained_elements, 8);
  ASSERT_EQ(report.problems.size(), 2u);
  EXPECT_EQ(report.problems[0].op, "NonZero");
  EXPECT_EQ(report.problems[1].op, "ArgMax");
  EXPECT_EQ(report.problems[1].kind, "gradient");
  EXPECT_THAT(ReportText(report),
              HasSubstr("import    where (NonZero): shapes that depend on data are not supported"));
  EXPECT_THAT(ReportJson(report), HasSubstr("\"trained_elements\": 8"));
}

}  // namespace
}  // namespace hyper::onnx_frontend
