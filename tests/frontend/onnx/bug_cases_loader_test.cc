// Public bug reports about loading and validation; the test names begin with the number of the
// case:
//   LV1 onnx#2902 · LV2 onnxruntime#3449 · LV3 onnx#1920 · LV4 onnx#5252 · LV5 onnx-optimizer#174 ·
//   LV6 onnx#3991 · LV7 onnx-tensorrt#1058 · LV8 onnx#3275 (large_files_test.cc) · LV9 models#320 ·
//   LV10 burn-onnx#434 · LV11 onnx#5701 · LV12 onnx/ir-py#182
#include "bug_cases.h"
#include "frontend/onnx/export.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kAdd =
    "g (float[2] x) => (float[2] y) <float[2] w = {3, 4}> { y = Add(x, w) }";

TEST(BugCasesLoader, LV1AnInitializerNeedNotBeAnInput) {
  const auto model = MustLoad(GraphModel(kAdd));
  const ImportedModel m = MustImport(*model, {});
  EXPECT_THAT(m.inputs, ElementsAre("x"));
  EXPECT_NE(m.forward.module.FindTensor("w"), nullptr);
}

TEST(BugCasesLoader, LV2WeightsListedAsInputsAreParameters) {
  onnx::ModelProto proto = GraphModel(R"(g (float[1,1,2,2] x) => (float[1,1,2,2] y)
    <float[1,1,1,1] w = {2}, float[1] s = {1}, float[1] b = {0}, float[1] mean = {0},
     float[1] var = {1}> { c = Conv(x, w) y = BatchNormalization(c, s, b, mean, var) })",
                                      8);
  proto.set_ir_version(3);
  for (const auto& tensor : proto.graph().initializer()) {
    auto* input = proto.mutable_graph()->add_input();
    input->set_name(tensor.name());
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(tensor.data_type());
    for (const int64_t dim : tensor.dims()) type->mutable_shape()->add_dim()->set_dim_value(dim);
  }
  const auto model = MustLoad(proto);
  ASSERT_NE(model, nullptr);
  ImportOptions options;
  options.training = true;
  options.losses.push_back({});
  options.losses[0].kind = ir::LossKind::kMse;
  options.losses[0].prediction = "y";
  options.losses[0].target = "t";
  const ImportedModel m = MustImport(*model, options);
  EXPECT_THAT(m.inputs, ElementsAre("x", "t"));
  EXPECT_EQ(m.plan.Find("w")->kind, ir::ArgumentKind::kParameter);
  EXPECT_EQ(m.plan.Find("mean")->kind, ir::ArgumentKind::kState);
}

TEST(BugCasesLoader, LV2SinceIr4AnInputMayHaveADefault) {
  onnx::ModelProto proto = GraphModel(kAdd);
  auto* input = proto.mutable_graph()->add_input();
  *input = proto.graph().input(0);
  input->set_name("w");
  const auto model = MustLoad(proto);
  const ImportedModel m = MustImport(*model, {});
  EXPECT_THAT(m.inputs, ElementsAre("x"));
  EXPECT_NE(m.forward.module.FindTensor("w"), nullptr);
  EXPECT_THAT(Outputs(proto, {}).at(0).as<float>(), ElementsAre(3, 4));
}

TEST(BugCasesLoader, LV3UnsortedNodesAreSortedAndCyclesRefused) {
  const auto r = Outputs(GraphModel("g (float[2] x) => (float[2] y) <float[2] w = {3, -4}> "
                                    "{ y = Relu(t) t = Add(x, w) }"),
                         {{"x", Floats({2}, {1, 1})}});
  EXPECT_THAT(r[0].as<float>(), ElementsAre(4, 0));
  EXPECT_THAT(
      RefuseLoad(GraphModel("g (float[2] x) => (float[2] b) { a = Add(x, b) b = Relu(a) }")),
      HasSubstr("the graph has a cycle"));
}

TEST(BugCasesLoader, LV4OneNameTwiceIsRefused) {
  onnx::ModelProto inputs = GraphModel(kAdd);
  *inputs.mutable_graph()->add_input() = inputs.graph().input(0);
  EXPECT_THAT(RefuseLoad(inputs), HasSubstr("tensor 'x' is defined twice"));
  EXPECT_THAT(RefuseLoad(GraphModel("g (float[2] x) => (float[2] y) { y = Relu(x) y = Neg(x) }")),
              HasSubstr("tensor 'y' is defined twice"));
}

TEST(BugCasesLoader, LV5TwoInitializersOfOneNameAreRefused) {
  onnx::ModelProto model = GraphModel(kAdd);
  *model.mutable_graph()->add_initializer() = model.graph().initializer(0);
  EXPECT_THAT(RefuseLoad(model), HasSubstr("two initializers are named 'w'"));
}

TEST(BugCasesLoader, LV6ExternalDataStaysInTheModelsFolder) {
  TempDir folder;
  for (const char* location : {"../../etc/passwd", "/etc/passwd", "a/../../b"}) {
    onnx::ModelProto model = GraphModel(kAdd);
    auto* tensor = model.mutable_graph()->mutable_initializer(0);
    tensor->clear_float_data();
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    auto* entry = tensor->add_external_data();
    entry->set_key("location");
    entry->set_value(location);
    EXPECT_THAT(RefuseLoad(model, folder.path()), HasSubstr("'w'")) << location;
  }
}

TEST(BugCasesLoader, LV7BytesMustMatchTheDims) {
  onnx::ModelProto longer = GraphModel(kAdd);
  auto* tensor = longer.mutable_graph()->mutable_initializer(0);
  tensor->clear_float_data();
  tensor->set_raw_data(std::string(4096, '\0'));
  EXPECT_THAT(RefuseLoad(longer), AllOf(HasSubstr("'w'"), HasSubstr("4096")));
  onnx::ModelProto shorter = GraphModel(kAdd);
  shorter.mutable_graph()->mutable_initializer(0)->mutable_float_data()->RemoveLast();
  EXPECT_THAT(RefuseLoad(shorter), AllOf(HasSubstr("'w'"), HasSubstr("float_data")));
}

TEST(BugCasesLoader, LV9NoOpsetIsRefused) {
  onnx::ModelProto model = GraphModel(kAdd);
  model.clear_opset_import();
  EXPECT_THAT(RefuseLoad(model), HasSubstr("opset_import is empty"));
}

TEST(BugCasesLoader, LV10DomainsAreFoundByName) {
  onnx::ModelProto second = GraphModel(kAdd);
  second.mutable_opset_import(0)->set_domain("ai.onnx.ml");
  second.mutable_opset_import(0)->set_version(3);
  auto* standard = second.add_opset_import();
  standard->set_domain("");
  standard->set_version(17);
  EXPECT_EQ(Outputs(second, {}).at(0).as<float>()[1], 4);
  standard->set_domain("ai.onnx");
  EXPECT_EQ(Outputs(second, {}).at(0).as<float>()[1], 4);
  // The default domain may be missing where nothing uses it, and only there.
  onnx::ModelProto missing = GraphModel(kAdd);
  missing.mutable_opset_import(0)->set_domain("ai.onnx.ml");
  missing.mutable_opset_import(0)->set_version(3);
  EXPECT_THAT(RefuseLoad(missing), HasSubstr("not imported"));
}

TEST(BugCasesLoader, LV10TheDefaultDomainMayBeMissingWhereNothingUsesIt) {
  onnx::ModelProto model = GraphModel("g (float[2] x) => (float[2] y) { y = Gelu(x) }");
  model.mutable_graph()->mutable_node(0)->set_domain("com.microsoft");
  model.mutable_opset_import(0)->set_domain("com.microsoft");
  model.mutable_opset_import(0)->set_version(1);
  EXPECT_THAT(Outputs(model, {}).at(0).as<float>(), ElementsAre(0, 0));
}

TEST(BugCasesLoader, LV11FunctionsInBranchesAreInlined) {
  const auto r = Outputs(ParseModel(R"(
<ir_version: 8, opset_import: ["" : 17, "pkg" : 1]>
g (float[2] x) => (float[2] y) {
  s = Size(x) three = Constant <value_int = 3> () c = Equal(s, three)
  y = If (c) <then_branch = t () => (float[2] a) { a = Neg(x) },
              else_branch = e () => (float[2] b) { b = pkg.twice (x) }> }
<opset_import: ["" : 17], domain: "pkg">
twice (a) => (b) { b = Add(a, a) }
)"),
                         {{"x", Floats({2}, {1, 5})}});
  ASSERT_EQ(r.size(), 1u);
  EXPECT_THAT(r[0].as<float>(), ElementsAre(2, 10));
}

TEST(BugCasesLoader, LV12BytesInAttributesAreNoText) {
  onnx::ModelProto model = GraphModel(kAdd);
  auto* node = model.mutable_graph()->mutable_node(0);
  node->set_domain("acme");
  node->set_op_type("Blob");
  auto* attribute = node->add_attribute();
  attribute->set_name("blob");
  attribute->set_type(onnx::AttributeProto::STRING);
  attribute->set_s("\xff\xfe\x80");
  auto* import = model.add_opset_import();
  import->set_domain("acme");
  import->set_version(1);
  EXPECT_THAT(RefuseLoad(model), HasSubstr("domain 'acme' is unknown"));
}

TEST(BugCasesLoader, LV12AttributeBytesSurviveAnExport) {
  TempDir folder;
  onnx::ModelProto proto = GraphModel(kAdd);
  auto* node = proto.mutable_graph()->add_node();
  node->set_op_type("Constant");
  node->add_output("blob");
  auto* attribute = node->add_attribute();
  attribute->set_name("value_string");
  attribute->set_type(onnx::AttributeProto::STRING);
  attribute->set_s(std::string("\xff\0\x80", 3));
  const auto model = MustLoad(proto);
  const ImportedModel imported = MustImport(*model, {});
  const auto stripped = StripWeights(*model, imported.plan);
  ASSERT_TRUE(stripped.ok()) << stripped.status().message();
  ASSERT_TRUE(ExportTrained(*stripped, {{"w", Floats({2}, {5, 6})}}, folder.File("o.onnx")).ok());
  std::ifstream file(folder.File("o.onnx"), std::ios::binary);
  onnx::ModelProto written;
  ASSERT_TRUE(written.ParseFromIstream(&file));
  EXPECT_EQ(written.graph().node(1).attribute(0).s(), attribute->s());
  // Names are text.
  proto.mutable_graph()->mutable_node(1)->set_output(0, "\xff");
  EXPECT_THAT(RefuseLoad(proto), HasSubstr("not UTF-8"));
}

}  // namespace
}  // namespace hyper::onnx_frontend
