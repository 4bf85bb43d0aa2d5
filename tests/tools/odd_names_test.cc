// Names that a file may carry and a file system, a YAML reader or a text form may trip over: from
// the model to the checkpoint and the exported file, and no file is called after them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "onnx/onnx_pb.h"
#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

constexpr int kWidth = 3, kBatch = 2;

std::vector<std::string> WeightNames() {
  return {
      "serving_default:0/kernel",
      "../../escape",
      "/absolute/path",
      "..",
      ".",
      "a b",
      " ",
      "say \"x\"",
      "it's",
      "back\\slash",
      "new\nline",
      "tab\tand\rreturn",
      std::string("\x01\x1f\x7f"),
      "\xc3\xbc\xe5\x90\x8d\xf0\x9f\x98\x80",  // u with dots, a Chinese letter, a face
      "a_b",
      "a:b",
      "a/b",
      "[x, y]",
      "{}",
      "%s {0}",
      "# no comment",
      "null",
      "true",
      "7",
      "-",
      "*",
      "a?c",
      "$HOME `id`",
      "<b>&amp;",
      "__metadata__",
      ":__metadata__",
      "loss",
      "@step",
      std::string(5000, 'n'),
      std::string(5000, 'n') + "2",
  };
}

const char* const kInput = "in put:0/../x";
const char* const kLabels = "la\"bels\n";

std::vector<std::string> OutputNames() {
  return {"../out:0",
          "../out/0",
          ".hidden",
          "../",
          "out 0",
          std::string(400, 'o'),
          std::string(400, 'o') + "!"};
}

void Declare(onnx::ValueInfoProto* info, const std::string& name) {
  info->set_name(name);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(onnx::TensorProto::FLOAT);
  for (const int extent : {kBatch, kWidth}) {
    tensor->mutable_shape()->add_dim()->set_dim_value(extent);
  }
}

// Every weight is added to the input in a node without a name; the sum is every output.
std::string WriteModel() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto* graph = model.mutable_graph();
  graph->set_name("../graph \"name\"\n");
  Declare(graph->add_input(), kInput);
  std::string last = kInput;
  auto node = [&](const std::string& op, std::vector<std::string> inputs, const std::string& y) {
    onnx::NodeProto* n = graph->add_node();
    n->set_op_type(op);
    for (const std::string& input : inputs) n->add_input(input);
    n->add_output(y);
  };
  float value = 0;
  for (const std::string& name : WeightNames()) {
    onnx::TensorProto* w = graph->add_initializer();
    w->set_name(name);
    w->set_data_type(onnx::TensorProto::FLOAT);
    w->add_dims(kWidth);
    for (int i = 0; i < kWidth; ++i) w->add_float_data(value += 0.01F);
    const std::string sum = "sum of\n" + name + "/:0";
    node("Add", {last, name}, sum);
    last = sum;
  }
  for (const std::string& name : OutputNames()) {
    Declare(graph->add_output(), name);
    node("Relu", {last}, name);
  }
  const std::string path = Scratch("odd.onnx");
  WriteBytes(path, model.SerializeAsString());
  return path;
}

std::string WriteStrategy(const std::string& name, const std::string& freeze, bool train) {
  std::string rows(kBatch * kWidth * sizeof(float), '\0');
  WriteBytes(Scratch("data/x.npy"), Npy("<f4", "2, 3", rows));
  const std::string path = Scratch(name + ".yaml");
  std::string text = "version: 1\n";
  if (!freeze.empty()) text += "model: {parameters: {freeze: [" + freeze + "]}}\n";
  if (train) {
    text += "train:\n  loss: {kind: mse, prediction: " + YamlScalar("../out:0") +
            ", target: " + YamlScalar(kLabels) + "}\n  optimizer: {kind: momentum, lr: 0.1}\n";
  }
  text += "data: {kind: npy, path: " + Scratch("data") + ", inputs: {" + YamlScalar(kInput) +
          ": x.npy" + (train ? ", " + YamlScalar(kLabels) + ": x.npy" : "") + "}}\n";
  text += "run: {steps: 2, dir: " + Scratch("work/run") + ", checkpoint: {every: 1}}\n";
  WriteBytes(path, text);
  return path;
}

std::set<std::string> AllFiles() {
  const std::vector<std::string> files = FilesBelow(ScratchFolder());
  std::set<std::string> kept;
  for (const std::string& file : files) {
    if (file.find("kernels") == std::string::npos) kept.insert(file);  // the kernel cache
  }
  return kept;
}

std::set<std::string> InitializersOf(const std::string& path) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(ReadBytes(path)));
  std::set<std::string> names;
  for (const onnx::TensorProto& t : model.graph().initializer()) names.insert(t.name());
  return names;
}

TEST(OddNames, AreInspected) {
  const std::string model = WriteModel();
  EXPECT_EQ(Hyperc({"inspect", model}).exit_code, 0);
  const CliRun json = Hyperc({"inspect", model, "--format", "json"});
  ASSERT_EQ(json.exit_code, 0) << json.err;
  std::set<std::string> names;
  const Json report = Json::parse(json.out);
  for (const Json& p : report["parameters"]) {
    names.insert(p["name"]);
    EXPECT_EQ(p["kind"], "trained") << p["name"];
  }
  const std::vector<std::string> want = WeightNames();
  EXPECT_EQ(names, std::set<std::string>(want.begin(), want.end()));
}

TEST(OddNames, SurviveTrainingCheckpointsAndExport) {
  const std::string model = WriteModel();
  const std::vector<std::string> all = WeightNames();
  // Names without wildcards mean themselves.
  std::string freeze;
  size_t frozen = 0;
  for (size_t i = 0; i < all.size(); i += 2) {
    if (all[i].find_first_of("*?") != std::string::npos) continue;
    freeze += (freeze.empty() ? "" : ", ") + YamlScalar(all[i]);
    ++frozen;
  }
  const std::string strategy = WriteStrategy("train", freeze, true);
  const CliRun check = Hyperc({"check", strategy, "--model", model});
  ASSERT_EQ(check.exit_code, 0) << check.err;
  const std::string bundle = Scratch("odd.bundle");
  const CliRun compile = Hyperc({"compile", model, "-s", strategy, "-o", bundle});
  ASSERT_EQ(compile.exit_code, 0) << compile.err;
  for (const char* form : {"--ir", "--memory", "--kernels"}) {
    const CliRun show = Hyperc({"show", bundle, form});
    EXPECT_EQ(show.exit_code, 0) << show.err;
  }
  EXPECT_TRUE(Json::accept(Hyperc({"show", bundle, "--format", "json"}).out));
  std::set<std::string> before = AllFiles();
  WriteBytes(Scratch("work/folder"), "");
  const std::string exported = Scratch("work/out.onnx");
  const CliRun run = Hyperrun(
      {bundle, "--threads", "1", "--export", exported, "--trace", Scratch("work/trace.json")});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  // Everything that was written lies where it was asked for, under names of the program's own.
  for (const std::string& file : AllFiles()) {
    if (before.count(file) > 0) continue;
    EXPECT_TRUE(file.starts_with("work/")) << file;
    EXPECT_TRUE(std::all_of(file.begin(), file.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || std::strchr("/._-", c) != nullptr;
    })) << file;
    EXPECT_EQ(file.find("nnn"), std::string::npos) << file;
  }
  EXPECT_TRUE(Json::accept(ReadBytes(Scratch("work/trace.json"))));
  const std::set<std::string> want(all.begin(), all.end());
  EXPECT_EQ(InitializersOf(exported), want);
  // A checkpoint has every tensor under its name, and training goes on from it.
  const Json manifest =
      Json::parse(ReadBytes(Scratch("work/run/checkpoints/step-00000002/manifest.json")));
  std::set<std::string> saved;
  size_t optimizer = 0;
  for (const Json& slice : manifest["tensors"]) {
    if (slice["storage"] == "optimizer") {
      ++optimizer;
    } else {
      saved.insert(slice["name"]);
    }
  }
  EXPECT_EQ(saved, want);
  EXPECT_EQ(optimizer, all.size() - frozen);
  const CliRun more = Hyperrun(
      {bundle, "--threads", "1", "--checkpoint", Scratch("work/run/checkpoints"), "--steps", "3"});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  const CliRun again =
      Hyperc({"export", bundle, "--checkpoint", Scratch("work/run/checkpoints/step-00000002"), "-o",
              Scratch("work/again.onnx")});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(ReadBytes(Scratch("work/again.onnx")), ReadBytes(exported));
}

TEST(OddNames, OfOutputsBecomeFilesInTheFolder) {
  const std::string model = WriteModel();
  const std::string bundle = Scratch("outputs.bundle");
  const CliRun compile =
      Hyperc({"compile", model, "-s", WriteStrategy("outputs", "", false), "-o", bundle});
  ASSERT_EQ(compile.exit_code, 0) << compile.err;
  const std::set<std::string> before = AllFiles();
  const CliRun run = Hyperrun({bundle, "--threads", "1", "--outputs", Scratch("out/files")});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::vector<std::string> made;
  for (const std::string& file : AllFiles()) {
    if (before.count(file) == 0) made.push_back(file);
  }
  const std::string cut(200, 'o');
  EXPECT_THAT(made, testing::UnorderedElementsAre(
                        "out/files/_.._out_0.npy", "out/files/_.._out_0-2.npy",
                        "out/files/_.hidden.npy", "out/files/_.._.npy", "out/files/out_0.npy",
                        "out/files/" + cut + ".npy", "out/files/" + cut + "-2.npy"));
}

TEST(OddNames, StandInMessagesAsTheyAre) {
  const CliRun run =
      Hyperc({"check", WriteStrategy("near", "\"../../escap\"", true), "--model", WriteModel()});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("did you mean '../../escape'?"));
}

}  // namespace
}  // namespace hyper::tools
