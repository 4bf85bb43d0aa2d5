#include <unistd.h>

#include "frontend/onnx/importer.h"
#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAddModel =
    "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }";

onnx::TensorProto* Weight(onnx::ModelProto* model) {
  return model->mutable_graph()->mutable_initializer(0);
}

void MakeExternal(onnx::TensorProto* t, const std::string& location) {
  t->clear_float_data();
  t->clear_raw_data();
  t->set_data_location(onnx::TensorProto::EXTERNAL);
  auto* e = t->add_external_data();
  e->set_key("location");
  e->set_value(location);
}

TEST(Load, AcceptsAPlainModel) {
  const auto model = MustLoad(GraphModel(kAddModel));
  ASSERT_EQ(model->tensors.size(), 1u);
  EXPECT_EQ(model->tensors[0].value.as<float>()[1], 2.0F);
  EXPECT_EQ(model->inputs.size(), 1u);
}

struct Malformed {
  const char* name;
  std::function<onnx::ModelProto()> make;
  const char* message;
};

class MalformedModel : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedModel, IsRefusedWithTheReason) {
  EXPECT_THAT(RefuseLoad(GetParam().make()), HasSubstr(GetParam().message));
}

onnx::ModelProto Changed(const std::function<void(onnx::ModelProto*)>& change,
                         const char* graph = kAddModel) {
  onnx::ModelProto model = GraphModel(graph);
  change(&model);
  return model;
}

const Malformed kMalformed[] = {
    {"raw_too_short",
     [] {
       return Changed([](auto* m) {
         Weight(m)->clear_float_data();
         Weight(m)->set_dims(0, 1000000);
         Weight(m)->set_raw_data("abcd");
       });
     },
     "raw_data has 4 bytes, but [1000000] of float needs 4000000"},
    {"raw_too_long",
     [] {
       return Changed([](auto* m) {
         Weight(m)->clear_float_data();
         Weight(m)->set_raw_data(std::string(12, 'a'));
       });
     },
     "raw_data has 12 bytes, but [2] of float needs 8"},
    {"typed_field_short", [] { return Changed([](auto* m) { Weight(m)->set_dims(0, 3); }); },
     "float_data has 2 values, but [3] of float needs 3"},
    {"negative_dims", [] { return Changed([](auto* m) { Weight(m)->set_dims(0, -2); }); },
     "extent -2"},
    {"overflowing_dims",
     [] {
       return Changed([](auto* m) {
         Weight(m)->set_dims(0, int64_t{1} << 62);
         Weight(m)->add_dims(8);
       });
     },
     "elements"},
    {"unknown_type", [] { return Changed([](auto* m) { Weight(m)->set_data_type(99); }); },
     "element type 99"},
    {"escaping_location",
     [] { return Changed([](auto* m) { MakeExternal(Weight(m), "../../../etc/passwd"); }); },
     "contains '..'"},
    {"absolute_location",
     [] { return Changed([](auto* m) { MakeExternal(Weight(m), "/etc/passwd"); }); },
     "is absolute"},
    {"missing_file",
     [] { return Changed([](auto* m) { MakeExternal(Weight(m), "no_such.data"); }); },
     "no_such.data"},
    {"output_of_nobody",
     [] { return Changed([](auto* m) { m->mutable_graph()->mutable_output(0)->set_name("z"); }); },
     "graph output 'z' is produced by no node"},
    {"undefined_input",
     [] {
       return Changed([](auto* m) { m->mutable_graph()->mutable_node(0)->set_input(1, "v"); });
     },
     "reads 'v', which nothing defines"},
    {"unknown_domain",
     [] {
       return Changed([](auto* m) {
         m->mutable_graph()->mutable_node(0)->set_domain("acme");
         auto* import = m->add_opset_import();
         import->set_domain("acme");
         import->set_version(1);
       });
     },
     "domain 'acme' is unknown"},
    {"domain_not_imported",
     [] {
       return Changed(
           [](auto* m) { m->mutable_graph()->mutable_node(0)->set_domain("ai.onnx.ml"); });
     },
     "is not imported"},
    {"opset_twice", [] { return Changed([](auto* m) { m->add_opset_import()->set_version(7); }); },
     "is imported twice, as version 17 and 7"},
    {"opset_twice_by_alias",
     [] {
       return Changed([](auto* m) {
         auto* import = m->add_opset_import();
         import->set_domain("ai.onnx");
         import->set_version(7);
       });
     },
     "is imported twice"},
    {"no_opset", [] { return Changed([](auto* m) { m->clear_opset_import(); }); },
     "opset_import is empty"},
    {"old_opset",
     [] { return Changed([](auto* m) { m->mutable_opset_import(0)->set_version(6); }); },
     "opset 6; opsets 7 to"},
    {"new_opset",
     [] { return Changed([](auto* m) { m->mutable_opset_import(0)->set_version(99); }); },
     "opset 99"},
    {"old_ir", [] { return Changed([](auto* m) { m->set_ir_version(2); }); }, "IR version 2"},
    {"new_ir", [] { return Changed([](auto* m) { m->set_ir_version(99); }); }, "IR version 99"},
    {"no_graph", [] { return Changed([](auto* m) { m->clear_graph(); }); }, "holds no graph"},
    {"ir3_initializer", [] { return Changed([](auto* m) { m->set_ir_version(3); }); },
     "initializer 'w' is not a graph input"},
    {"duplicate_input",
     [] {
       return Changed([](auto* m) { *m->mutable_graph()->add_input() = m->graph().input(0); });
     },
     "tensor 'x' is defined twice"},
    {"duplicate_output",
     [] { return Changed([](auto* m) { *m->mutable_graph()->add_node() = m->graph().node(0); }); },
     "tensor 'y' is defined twice"},
    {"duplicate_initializer",
     [] {
       return Changed(
           [](auto* m) { *m->mutable_graph()->add_initializer() = m->graph().initializer(0); });
     },
     "two initializers are named 'w'"},
    {"unknown_op",
     [] {
       return Changed([](auto* m) { m->mutable_graph()->mutable_node(0)->set_op_type("Addd"); });
     },
     "no operator 'Addd' in opset 17"},
    {"unknown_attribute",
     [] {
       return Changed([](auto* m) {
         auto* a = m->mutable_graph()->mutable_node(0)->add_attribute();
         a->set_name("axis");
         a->set_type(onnx::AttributeProto::INT);
       });
     },
     "axis"},
    {"too_many_operands",
     [] { return Changed([](auto* m) { m->mutable_graph()->mutable_node(0)->add_input("x"); }); },
     "has input size 3 not in range"},
    {"negative_extent_of_input",
     [] {
       return Changed([](auto* m) {
         m->mutable_graph()
             ->mutable_input(0)
             ->mutable_type()
             ->mutable_tensor_type()
             ->mutable_shape()
             ->mutable_dim(0)
             ->set_dim_value(-2);
       });
     },
     "has extent -2"},
    {"name_not_utf8",
     [] {
       return Changed([](auto* m) {
         m->mutable_graph()->mutable_node(0)->set_output(0, "\xff");
         m->mutable_graph()->mutable_output(0)->set_name("\xff");
       });
     },
     "not UTF-8"},
    {"cycle",
     [] {
       return Changed([](auto*) {},
                      "g (float[2] x) => (float[2] c) { a = Add(x, c) b = Relu(a) c = Relu(b) }");
     },
     "the graph has a cycle: 'a' (Add) -> 'b' (Relu) -> 'c' (Relu) -> 'a'"},
};

INSTANTIATE_TEST_SUITE_P(Load, MalformedModel, ::testing::ValuesIn(kMalformed),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Load, ReportsEverythingInOneRun) {
  onnx::ModelProto model = GraphModel(kAddModel);
  Weight(&model)->set_dims(0, 3);
  model.set_ir_version(99);
  model.mutable_graph()->mutable_node(0)->set_op_type("Addd");
  EXPECT_THAT(RefuseLoad(model),
              AllOf(HasSubstr("IR version 99"), HasSubstr("float_data"), HasSubstr("Addd")));
}

TEST(Load, AcceptsWhatIsLegal) {
  // "ai.onnx" is the default domain; a missing default domain is legal when unused.
  onnx::ModelProto model = GraphModel(kAddModel);
  model.mutable_opset_import(0)->set_domain("ai.onnx");
  EXPECT_NE(MustLoad(model), nullptr);
  // An absent operand in the middle, an initializer and an input as outputs.
  EXPECT_NE(MustLoad(GraphModel("g (float[2] x) => (float[2] y, float[2] w, float[2] x) "
                                "<float[2] w = {1, 2}, float c = {3}> { y = Clip(x, , c) }")),
            nullptr);
}

TEST(Load, TruncatedAndForeignFilesAreRefused) {
  TempDir dir;
  std::string bytes;
  GraphModel(kAddModel).SerializeToString(&bytes);
  const LoadOptions options;
  for (size_t keep : {size_t{0}, size_t{1}, bytes.size() / 2, bytes.size() - 1}) {
    WriteBytes(dir.File("t.onnx"), bytes.substr(0, keep));
    Diagnostics diagnostics;
    EXPECT_FALSE(LoadModel(dir.File("t.onnx"), options, &diagnostics).ok()) << keep;
    EXPECT_THAT(diagnostics.Render(), HasSubstr("t.onnx"));
  }
  WriteBytes(dir.File("big.onnx"), bytes);
  LoadOptions small;
  small.max_file_bytes = 10;
  Diagnostics diagnostics;
  EXPECT_FALSE(LoadModel(dir.File("big.onnx"), small, &diagnostics).ok());
  EXPECT_THAT(diagnostics.Render(), HasSubstr("external data"));
  EXPECT_FALSE(LoadModel(dir.File("none.onnx"), options, &diagnostics).ok());
}

TEST(Load, DamagedBytesNeverCrash) {
  std::string bytes;
  GraphModel(kAddModel).SerializeToString(&bytes);
  int accepted = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (unsigned char bit : {0x01, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ bit);
      onnx::ModelProto model;
      if (!model.ParseFromString(damaged)) continue;
      Diagnostics diagnostics;
      auto loaded = LoadModelProto(model, "m.onnx", "", &diagnostics);
      if (!loaded.ok()) continue;
      ++accepted;
      (void)Import(**loaded, {}, &diagnostics);
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(Load, ExternalDataIsReadFromTheModelsFolder) {
  TempDir dir;
  onnx::ModelProto model = GraphModel(kAddModel);
  MakeExternal(Weight(&model), "w.data");
  const float values[] = {0, 3, 4};
  WriteBytes(dir.File("w.data"),
             std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  auto* offset = Weight(&model)->add_external_data();
  offset->set_key("offset");
  offset->set_value("4");
  std::string bytes;
  model.SerializeToString(&bytes);
  WriteBytes(dir.File("m.onnx"), bytes);
  Diagnostics diagnostics;
  auto loaded = LoadModel(dir.File("m.onnx"), {}, &diagnostics);
  ASSERT_TRUE(loaded.ok()) << diagnostics.Render();
  EXPECT_EQ((*loaded)->tensors[0].value.as<float>()[1], 4.0F);

  offset->set_value("8");
  EXPECT_THAT(RefuseLoad(model, dir.path()), HasSubstr("external data has 4 bytes"));
  offset->set_value("900");
  EXPECT_THAT(RefuseLoad(model, dir.path()), HasSubstr("beyond"));
  offset->set_value("-1");
  EXPECT_THAT(RefuseLoad(model, dir.path()), HasSubstr("is not a size"));
}

TEST(Load, LinksOutOfTheFolderAreRefused) {
  TempDir dir;
  TempDir outside;
  WriteBytes(outside.File("w.data"), std::string(8, 'a'));
  onnx::ModelProto model = GraphModel(kAddModel);
  MakeExternal(Weight(&model), "w.data");
  ASSERT_EQ(::symlink(outside.File("w.data").c_str(), dir.File("w.data").c_str()), 0);
  EXPECT_THAT(RefuseLoad(model, dir.path()),
              AllOf(HasSubstr("outside the model's folder"), HasSubstr(outside.path())));
  std::filesystem::remove(dir.File("w.data"));
  std::filesystem::create_hard_link(outside.File("w.data"), dir.File("w.data"));
  EXPECT_THAT(RefuseLoad(model, dir.path()), HasSubstr("hard links"));
}

TEST(Load, SortsNodesWithAWarning) {
  Diagnostics diagnostics;
  auto loaded = LoadModelProto(GraphModel("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> "
                                          "{ y = Relu(t) t = Add(x, w) }"),
                               "m.onnx", "", &diagnostics);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ((*loaded)->graph().node(0).op_type(), "Add");
  EXPECT_THAT(diagnostics.Render(), HasSubstr("node 'y' reads 't' before it is computed"));
}

constexpr const char* kFunctions = R"(
<ir_version: 8, opset_import: ["" : 17, "pkg" : 1]>
g (float[2] x) => (float[2] y, float[2] z) { y = pkg.twice <k = 3> (x) z = pkg.twice <k = 5> (x) }
<opset_import: ["" : 17, "pkg" : 1], domain: "pkg">
twice <k> (a) => (b) { t = pkg.scale <k: int = @k> (a) b = Add(t, a) }
<opset_import: ["" : 17], domain: "pkg">
scale <k> (a) => (b) { c = Constant <value_int: int = @k> () d = CastLike(c, a) b = Mul(a, d) }
)";

TEST(Load, InlinesNestedFunctions) {
  const auto model = MustLoad(ParseModel(kFunctions));
  EXPECT_EQ(model->proto->functions_size(), 0);
  EXPECT_EQ(model->original->functions_size(), 2);
  std::set<std::string> outputs;
  for (const auto& node : model->graph().node()) {
    for (const auto& o : node.output()) EXPECT_TRUE(outputs.insert(o).second) << o;
  }
  const ImportedModel imported = MustImport(*model, {});
  const auto r = Evaluated(
      imported, "eval", {{"x", ir::HostTensor::FromVector<float>(ir::DType::kF32, {2}, {1, 2})}});
  EXPECT_EQ(r[0].as<float>()[1], 8.0F);
  EXPECT_EQ(r[1].as<float>()[1], 12.0F);
}

TEST(Load, RefusesRecursiveFunctions) {
  const std::string text = R"(
<ir_version: 8, opset_import: ["" : 17, "pkg" : 1]>
g (float[2] x) => (float[2] y) { y = pkg.f (x) }
<opset_import: ["" : 17, "pkg" : 1], domain: "pkg">
f (a) => (b) { b = pkg.h (a) }
<opset_import: ["" : 17, "pkg" : 1], domain: "pkg">
h (a) => (b) { b = pkg.f (a) }
)";
  EXPECT_THAT(RefuseLoad(ParseModel(text)), HasSubstr("pkg.f -> pkg.h -> pkg.f"));
}

TEST(Load, ListedInitializersAreNotInputs) {
  onnx::ModelProto model = GraphModel(kAddModel);
  model.set_ir_version(3);
  auto* input = model.mutable_graph()->add_input();
  *input = model.graph().input(0);
  input->set_name("w");
  const auto loaded = MustLoad(model);
  EXPECT_TRUE(loaded->tensors[0].also_input);
  ASSERT_EQ(loaded->inputs.size(), 1u);
  EXPECT_EQ(loaded->inputs[0]->name(), "x");
}

}  // namespace
}  // namespace hyper::onnx_frontend
