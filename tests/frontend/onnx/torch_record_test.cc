// Files that hold PyTorch's record of the exported program: what its exporter merges, folds, unties
// and drops is put right again, trained under the original names and written back.
#include "frontend/onnx/torch_metadata.h"

#include "base/strings.h"
#include "frontend/onnx/export.h"
#include "frontend/onnx/inspect.h"
#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename Proto>
void SetMetadata(Proto* proto, const std::string& key, const std::string& value) {
  auto* entry = proto->add_metadata_props();
  entry->set_key(key);
  entry->set_value(value);
}

// A model as the exporter writes it: `signature` has one input per line, `calls` the call behind
// the node with that first output, `folded` the names that a tensor was computed from.
onnx::ModelProto Recorded(const std::string& graph, const std::string& signature,
                          const std::map<std::string, std::string>& calls,
                          const std::map<std::string, std::string>& folded = {}) {
  onnx::ModelProto model = Dotted(GraphModel(graph, 18));
  onnx::GraphProto* g = model.mutable_graph();
  SetMetadata(g, "pkg.torch.export.ExportedProgram.graph_signature",
              "\n# inputs\n" + signature + "x: USER_INPUT\n\n# outputs\ny: USER_OUTPUT\n");
  for (onnx::NodeProto& node : *g->mutable_node()) {
    const auto call = calls.find(node.output(0));
    if (call == calls.end()) continue;
    const size_t at = call->second.find('(');
    SetMetadata(&node, "pkg.torch.onnx.fx_node",
                "%" + node.output(0) + " : [num_users=1] = call_function[target=torch.ops.aten." +
                    call->second.substr(0, at) + ".default](args = " + call->second.substr(at) +
                    ", kwargs = {})");
  }
  for (const auto& [tensor, from] : folded) {
    onnx::ValueInfoProto* info = g->add_value_info();
    info->set_name(tensor);
    SetMetadata(info, kFoldedFromKey, from);
  }
  return model;
}

std::string Parameter(const std::string& placeholder, const std::string& name) {
  return placeholder + ": PARAMETER target='" + name + "'\n";
}
std::string Buffer(const std::string& placeholder, const std::string& name) {
  return placeholder + ": BUFFER target='" + name + "' persistent=True\n";
}

ImportOptions Training() {
  ImportOptions options;
  options.training = true;
  options.losses.push_back({ir::LossKind::kMse, "y", "t"});
  return options;
}

// "name kind" of every tensor that the program keeps, sorted by name.
std::vector<std::string> Kept(const ImportedModel& model) {
  std::vector<std::string> kept;
  for (const ir::PersistentTensor& t : model.forward.module.tensors) {
    kept.push_back(t.name + " " + std::string(ir::ArgumentKindName(t.kind)) +
                   FormatDims(t.type.dims));
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

// Gives every tensor other values, exports, loads the file again: it computes what the program
// does, and holds the same tensors. Returns the loaded file.
std::unique_ptr<LoadedModel> ExportedAgain(const LoadedModel& model,
                                           const std::map<std::string, ir::HostTensor>& inputs) {
  const ImportOptions options = Training();
  ImportedModel imported = MustImport(model, options);
  std::map<std::string, ir::HostTensor> values;
  float next = 0.5F;
  for (ir::PersistentTensor& t : imported.forward.module.tensors) {
    std::vector<float> data;
    for (int64_t i = 0; i < t.type.elements(); ++i) data.push_back(next += 0.125F);
    values[t.name] = t.initial = ir::HostTensor::FromVector(ir::DType::kF32, t.type.dims, data);
  }
  const auto stripped = StripWeights(model, imported.plan);
  EXPECT_TRUE(stripped.ok()) << stripped.status().message();
  TempDir dir;
  const Status written = ExportTrained(*stripped, values, dir.File("out.onnx"));
  EXPECT_TRUE(written.ok()) << written.message();
  Diagnostics diagnostics;
  auto loaded = LoadModel(dir.File("out.onnx"), {}, &diagnostics);
  EXPECT_TRUE(loaded.ok()) << diagnostics.Render();
  if (!loaded.ok()) return nullptr;
  const ImportedModel again = MustImport(**loaded, options);
  EXPECT_EQ(Kept(again), Kept(imported));
  for (const ir::PersistentTensor& t : again.forward.module.tensors) {
    EXPECT_TRUE(t.initial == values.at(t.name)) << t.name;
  }
  const auto want = Evaluated(imported, "eval", inputs);
  const auto got = Evaluated(again, "eval", inputs);
  EXPECT_EQ(got.size(), want.size());
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) EXPECT_TRUE(got[i] == want[i]);
  return std::move(loaded).value();
}

ir::HostTensor F32(ir::Dims dims, std::vector<float> values) {
  return ir::HostTensor::FromVector(ir::DType::kF32, std::move(dims), values);
}

TEST(TorchRecord, ParsesCalls) {
  const auto call = ParseTorchCall(
      "%linear_1 : [num_users=1] = call_function[target=torch.ops.aten.linear.default]"
      "(args = (%view_8, %p_a_weight, [%p_b, (1, 2)]), kwargs = {scale: %c_0})");
  ASSERT_TRUE(call.has_value());
  EXPECT_EQ(call->op, "linear");
  EXPECT_THAT(call->refs, ElementsAre("view_8", "p_a_weight", "p_b", "c_0"));
  EXPECT_THAT(call->arguments, ElementsAre("%view_8", "%p_a_weight", "[%p_b, (1, 2)]"));
  for (const char* text : {"", "%x", "[target=a](args = (", "](args = ([target=", "call(("}) {
    (void)ParseTorchCall(text);  // any text may stand in a file
  }
}

TEST(TorchRecord, ReadsBothFormsOfTheSignatureAndDoesWithoutOne) {
  const char* graph = R"(g (float[2,2] x) => (float[2,2] y)
    <float[2,2] layer__w = {1, 2, 3, 4}> { y = MatMul(x, layer__w) })";
  const std::map<std::string, std::string> calls = {{"y", "matmul(%x, %p_layer_w)"}};
  const std::string old =
      "ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, "
      "arg=TensorArgument(name='p_layer_w'), target='layer.w', persistent=None), "
      "InputSpec(kind=<InputKind.USER_INPUT: 1>, arg=TensorArgument(name='x'), target=None)]";
  for (const std::string& signature : {Parameter("p_layer_w", "layer.w"), old, std::string()}) {
    const auto model = MustLoad(Recorded(graph, signature, calls));
    const auto record = ReadTorchRecord(*model);
    ASSERT_TRUE(record.has_value());
    const TorchInput* input = record->FindPlaceholder("p_layer_w");
    ASSERT_NE(input, nullptr) << signature;
    EXPECT_EQ(input->kind, TorchKind::kParameter);
    EXPECT_EQ(input->name, signature.empty() ? "layer_w" : "layer.w");
  }
  EXPECT_FALSE(ReadTorchRecord(*MustLoad(Dotted(GraphModel(graph)))).has_value());
}

constexpr const char* kNorms = R"(g (float[4,2] x) => (float[4,2] y)
  <float[2] n1__weight = {1, 1}, float[2] n1__bias = {0, 0}> {
    a = LayerNormalization(x, n1__weight, n1__bias)
    y = LayerNormalization(a, n1__weight, n1__bias) })";

TEST(TorchRecord, MergedParametersAreSeparateAgain) {
  const std::string signature =
      Parameter("p_n1_weight", "n1.weight") + Parameter("p_n1_bias", "n1.bias") +
      Parameter("p_n2_weight", "n2.weight") + Parameter("p_n2_bias", "n2.bias");
  const auto model =
      MustLoad(Recorded(kNorms, signature,
                        {{"a", "layer_norm(%x, [2], %p_n1_weight, %p_n1_bias, 1e-05, False)"},
                         {"y", "layer_norm(%a, [2], %p_n2_weight, %p_n2_bias, 1e-05, False)"}}));
  Diagnostics diagnostics;
  const ImportedModel m = MustImport(*model, Training(), &diagnostics);
  EXPECT_THAT(Kept(m), ElementsAre("n1.bias parameter[2]", "n1.weight parameter[2]",
                                   "n2.bias parameter[2]", "n2.weight parameter[2]"));
  EXPECT_THAT(diagnostics.Render(), HasSubstr("separate again: n2.weight, n2.bias"));
  const auto loaded = ExportedAgain(*model, {{"x", F32({4, 2}, {1, 2, 3, 5, 8, 1, 2, 3})}});
  EXPECT_NE(loaded->FindTensor("n2.weight"), nullptr);
  // Both calls name one parameter: it is tied and stays so.
  const auto tied =
      MustLoad(Recorded(kNorms, signature,
                        {{"a", "layer_norm(%x, [2], %p_n1_weight, %p_n1_bias, 1e-05, False)"},
                         {"y", "layer_norm(%a, [2], %p_n1_weight, %p_n1_bias, 1e-05, False)"}}));
  EXPECT_EQ(MustImport(*tied, Training()).forward.module.tensors.size(), 2u);
}

TEST(TorchRecord, MergesWithoutARecordAreTold) {
  Diagnostics diagnostics;
  const ImportedModel m =
      MustImport(*MustLoad(Dotted(GraphModel(kNorms))), Training(), &diagnostics);
  EXPECT_EQ(m.forward.module.tensors.size(), 2u);
  EXPECT_THAT(diagnostics.Render(), HasSubstr("trained as one parameter each: n1.weight, n1.bias"));
}

TEST(TorchRecord, StatisticsAndWeightsOfEqualValueAreToldApart) {
  const auto model = MustLoad(Recorded(
      R"(g (float[4,2] x) => (float[4,2] y) <float[2] b1__weight = {1, 1}, float[2] b1__bias = {0, 0}> {
           a = BatchNormalization(x, b1__weight, b1__bias, b1__bias, b1__weight)
           y = BatchNormalization(a, b1__weight, b1__bias, b1__bias, b1__weight) })",
      Parameter("p_1w", "b1.weight") + Parameter("p_1b", "b1.bias") + Buffer("b_1m", "b1.mean") +
          Buffer("b_1v", "b1.var") + Parameter("p_2w", "b2.weight") + Parameter("p_2b", "b2.bias") +
          Buffer("b_2m", "b2.mean") + Buffer("b_2v", "b2.var"),
      {{"a", "batch_norm(%x, %p_1w, %p_1b, %b_1m, %b_1v, 0.1)"},
       {"y", "batch_norm(%a, %p_2w, %p_2b, %b_2m, %b_2v, 0.1)"}}));
  EXPECT_THAT(Kept(MustImport(*model, Training())),
              ElementsAre("b1.bias parameter[2]", "b1.mean state[2]", "b1.var state[2]",
                          "b1.weight parameter[2]", "b2.bias parameter[2]", "b2.mean state[2]",
                          "b2.var state[2]", "b2.weight parameter[2]"));
  ExportedAgain(*model, {{"x", F32({4, 2}, {1, 2, 3, 5, 8, 1, 2, 3})}});
}

TEST(TorchRecord, UntiedWeightsAreOneAgainInTheirOriginalLayout) {
  const std::string graph = R"(g (int64[3] x) => (float[3,3] y)
    <float[3,2] e__weight = {1, 2, 3, 4, 5, 6}, float[2,3] val_7 = {1, 3, 5, 2, 4, 6}> {
      a = Gather(e__weight, x) y = MatMul(a, val_7) })";
  const auto model =
      MustLoad(Recorded(graph, Parameter("p_e_weight", "e.weight"),
                        {{"a", "embedding(%p_e_weight, %x)"}, {"y", "linear(%a, %p_e_weight)"}},
                        {{"val_7", "['e.weight']"}}));
  EXPECT_THAT(Kept(MustImport(*model, Training())), ElementsAre("e.weight parameter[3,2]"));
  const auto ids = ir::HostTensor::FromVector<int64_t>(ir::DType::kI64, {3}, {2, 0, 1});
  const auto loaded = ExportedAgain(*model, {{"x", ids}});
  // Both places of the file were written.
  EXPECT_TRUE(PermuteTensor(loaded->FindTensor("e.weight")->value, {1, 0}) ==
              loaded->FindTensor("val_7")->value);
  EXPECT_NE(loaded->FindTensor("val_7")->value.as<float>()[0], 1.0F);
  // Without a record only the values speak.
  Diagnostics diagnostics;
  MustImport(*MustLoad(Dotted(GraphModel(graph))), Training(), &diagnostics);
  EXPECT_THAT(diagnostics.Render(), HasSubstr("model: {tie: [[e.weight, val_7]]}"));
}

TEST(TorchRecord, FoldedParametersHaveTheirOriginalNamesAndLayout) {
  // Two layers that began with equal values: the transposed copy is stored once.
  const auto model = MustLoad(Recorded(
      R"(g (float[2,2] x) => (float[2,2] y)
        <float[2,2] val_1 = {1, 2, 3, 4}, float[1,2] view = {1, 2}> {
           a = MatMul(x, val_1) b = Sigmoid(a) c = MatMul(b, val_1) y = Mul(c, view) })",
      Parameter("p_l1_weight", "l1.weight") + Parameter("p_l2_weight", "l2.weight") +
          Parameter("p_v", "v"),
      {{"a", "linear(%x, %p_l1_weight)"},
       {"b", "sigmoid(%a)"},
       {"c", "linear(%b, %p_l2_weight)"},
       {"y", "mul(%c, %view)"}},
      {{"val_1", "['l1.weight']"}, {"view", "['v', 'val_0']"}}));
  ImportOptions options = Training();
  const ImportedModel m = MustImport(*model, options);
  EXPECT_THAT(Kept(m), ElementsAre("l1.weight parameter[2,2]", "l2.weight parameter[2,2]",
                                   "v parameter[1,2]"));
  EXPECT_TRUE(m.plan.Find("l1.weight")->value == F32({2, 2}, {1, 3, 2, 4}));
  EXPECT_EQ(m.plan.Find("l1.weight")->alias, "val_1");
  ExportedAgain(*model, {{"x", F32({2, 2}, {1, -2, 3, 5})}});
  // Original names and those of the file both work in globs.
  options.rules = {{"l2.*", false}, {"view", false}};
  EXPECT_THAT(Kept(MustImport(*model, options)),
              ElementsAre("l1.weight parameter[2,2]", "l2.weight frozen[2,2]", "v frozen[1,2]"));
}

TEST(TorchRecord, WhatIsComputedFromParametersIsTrainedInTheirPlaceAndTold) {
  const auto model = MustLoad(
      Recorded(R"(g (float[2,2] x) => (float[2,2] y) <float[2] exp = {1, 2}> { y = Mul(x, exp) })",
               Parameter("p_s", "log_scale") + Parameter("p_z", "zeros"), {{"y", "mul(%x, %exp)"}},
               {{"exp", "['log_scale']"}}));
  Diagnostics diagnostics;
  EXPECT_THAT(Kept(MustImport(*model, Training(), &diagnostics)), ElementsAre("exp parameter[2]"));
  EXPECT_THAT(diagnostics.Render(), HasSubstr("exp from log_scale"));
}

TEST(TorchRecord, BuffersAndLiteralsAreNotTrained) {
  const auto model = MustLoad(Recorded(
      R"(g (float[2,2] x) => (float[2,2] y)
        <float[2,2] w = {1, 2, 3, 5}, float[2] mean = {0.5, 0.25}, float[2] clone = {2, 3},
         float[2] b = {0, 0}> {
           a = Sub(x, mean) c = MatMul(a, w) d = Add(c, b) e = Mul(d, clone) y = Add(e, b) })",
      Parameter("p_w", "w") + Parameter("p_b", "b") + Buffer("b_mean", "mean") +
          Buffer("b_zero", "zero") + "c_lifted: CONSTANT_TENSOR target='lifted'\n",
      {{"a", "sub(%x, %b_mean)"},
       {"c", "matmul(%a, %p_w)"},
       {"d", "add(%c, %p_b)"},
       {"e", "mul(%d, %clone)"},
       {"y", "add(%e, %b_zero)"}},
      {{"clone", "['lifted']"}}));
  ImportOptions options = Training();
  Diagnostics diagnostics;
  ImportedModel m = MustImport(*model, options, &diagnostics);
  // The buffer that shares the bias's zeros is a tensor of its own.
  EXPECT_THAT(Kept(m), ElementsAre("b parameter[2]", "mean frozen[2]", "w parameter[2,2]",
                                   "zero frozen[2]"));
  EXPECT_TRUE(m.plan.Find("lifted")->constant);
  EXPECT_THAT(diagnostics.Render(), Not(HasSubstr("look like buffers")));
  ExportedAgain(*model, {{"x", F32({2, 2}, {1, -2, 3, 5})}});
  // A glob does not reach buffers, their names do.
  options.rules = {{"m*", true}};
  Diagnostics warned;
  EXPECT_EQ(MustImport(*model, options, &warned).plan.Find("mean")->kind,
            ir::ArgumentKind::kFrozen);
  EXPECT_THAT(warned.Render(), HasSubstr("the pattern 'm*' trains nothing: it matches buffers only "
                                         "(mean), which a rule trains when it gives exactly"));
  for (const char* effective : {"mean", "*", "**"}) {
    options.rules = {{effective, true}};
    Diagnostics quiet;
    const ImportedModel trained = MustImport(*model, options, &quiet);
    EXPECT_THAT(quiet.Render(), Not(HasSubstr("trains nothing"))) << effective;
    EXPECT_EQ(trained.plan.Find("mean")->kind == ir::ArgumentKind::kParameter,
              effective == std::string("mean"));
  }
}

TEST(TorchRecord, ANumberThatSharesAParametersTensorStaysANumber) {
  const auto model = MustLoad(Recorded(
      R"(g (float[2] x) => (float[2] y) <float[2] s = {2, 2}> { a = Mul(x, s) y = Div(a, s) })",
      Parameter("p_s", "s"), {{"a", "mul(%x, %p_s)"}, {"y", "div(%a, 2.0)"}}));
  const ImportedModel m = MustImport(*model, Training());
  EXPECT_THAT(Kept(m), ElementsAre("s parameter[2]"));
  const auto loaded = ExportedAgain(*model, {{"x", F32({2}, {3, 4})}});
  const auto y = Evaluated(MustImport(*loaded, {}), "eval", {{"x", F32({2}, {3, 4})}});
  EXPECT_FLOAT_EQ(y[0].as<float>()[0], 3 * 0.625F / 2);
}

TEST(TorchRecord, RemovedZeroBiasesAreParametersAgain) {
  onnx::ModelProto proto = Recorded(
      R"(g (float[2,2] x) => (float[2,3] y)
        <float[2,2] a__weight = {1, 2, 3, 5}, float[3,2] c__weight = {1, 2, 3, 4, 5, 7}> {
           h = Gemm <transB = 1> (x, a__weight) y = Gemm <transB = 1> (h, c__weight) })",
      Parameter("p_aw", "a.weight") + Parameter("p_ab", "a.bias") + Parameter("p_cw", "c.weight") +
          Parameter("p_cb", "c.bias"),
      {{"h", "linear(%x, %p_aw, %p_ab)"}, {"y", "linear(%h, %p_cw, %p_cb)"}});
  for (onnx::NodeProto& node : *proto.mutable_graph()->mutable_node()) {
    SetMetadata(&node, "pkg.onnxscript.rewriter.rule_name", "RemoveOptionalBiasFromGemm");
  }
  const auto model = MustLoad(proto);
  Diagnostics diagnostics;
  const ImportedModel m = MustImport(*model, Training(), &diagnostics);
  EXPECT_THAT(Kept(m), ElementsAre("a.bias parameter[2]", "a.weight parameter[2,2]",
                                   "c.bias parameter[3]", "c.weight parameter[3,2]"));
  EXPECT_THAT(diagnostics.Render(), HasSubstr("left out are parameters again: a.bias, c.bias"));
  const auto loaded = ExportedAgain(*model, {{"x", F32({2, 2}, {1, -2, 3, 5})}});
  EXPECT_EQ(loaded->graph().node(0).input_size(), 3);
}

TEST(TorchRecord, AFoldedBatchNormDoesNotRenameTheConvolution) {
  onnx::ModelProto proto = Recorded(
      R"(g (float[1,1,2,2] x) => (float[1,2,2,2] y)
        <float[2,1,1,1] c__weight = {1, 2}, float[2] c__bias = {3, 4}> {
           y = Conv(x, c__weight, c__bias) })",
      Parameter("p_cw", "c.weight") + Parameter("p_cb", "c.bias") + Parameter("p_bw", "b.weight") +
          Parameter("p_bb", "b.bias"),
      {{"y", "batch_norm(%c, %p_bw, %p_bb, %b_m, %b_v, 0.1)"}});
  SetMetadata(proto.mutable_graph()->mutable_node(0), "pkg.onnxscript.rewriter.rule_name",
              "FuseBatchNormIntoConv");
  Diagnostics diagnostics;
  EXPECT_THAT(Kept(MustImport(*MustLoad(proto), Training(), &diagnostics)),
              ElementsAre("c.bias parameter[2]", "c.weight parameter[2,1,1,1]"));
  EXPECT_THAT(diagnostics.Render(),
              AllOf(HasSubstr("folded a BatchNormalization into these"),
                    HasSubstr("left out of the file, so that they are not trained: b.weight")));
}

TEST(TorchRecord, ParametersThatTheFileLacksAreNamed) {
  const auto model = MustLoad(Recorded(
      R"(g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Mul(x, w) y = Relu(a) })",
      Parameter("p_w", "w") + Parameter("p_gone", "gone") + Parameter("p_unused", "unused"),
      {{"a", "mul(%x, %p_w)"}, {"y", "prelu(%a, %p_gone)"}}));
  Diagnostics diagnostics;
  MustImport(*model, Training(), &diagnostics);
  EXPECT_THAT(diagnostics.Render(),
              AllOf(HasSubstr("left out of the file, so that they are not trained: gone"),
                    Not(HasSubstr("unused"))));
}

TEST(TorchRecord, DamagedPlacesOfAStrippedModelAreRefused) {
  const auto model = MustLoad(Recorded(
      R"(g (float[2,2] x) => (float[2,2] y) <float[2,2] val_1 = {1, 2, 3, 4}> {
           y = MatMul(x, val_1) })",
      Parameter("p_w", "w"), {{"y", "linear(%x, %p_w)"}}, {{"val_1", "['w']"}}));
  const ImportedModel m = MustImport(*model, Training());
  const auto stripped = StripWeights(*model, m.plan);
  ASSERT_TRUE(stripped.ok());
  const std::map<std::string, ir::HostTensor> values = {{"w", m.plan.Find("w")->value}};
  TempDir dir;
  EXPECT_TRUE(ExportTrained(*stripped, values, dir.File("a.onnx")).ok());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"permutation\":[1,0]", "\"permutation\":[1,1]"},
           {"\"permutation\":[1,0]", "\"permutation\":[7,0]"},
           {"\"file_dims\":[2,2]", "\"file_dims\":[2,9]"},
           {"\"tensor\":\"val_1\"", "\"tensor\":\"val_2\""}}) {
    std::string damaged = *stripped;
    const size_t at = damaged.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    damaged.replace(at, from.size(), to);
    EXPECT_FALSE(ExportTrained(damaged, values, dir.File("b.onnx")).ok()) << to;
  }
}

}  // namespace
}  // namespace hyper::onnx_frontend
