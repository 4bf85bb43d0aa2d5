// hyperc inspect and hyperc check: what a user sees before compiling.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "onnx/onnx_pb.h"
#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

const char* const kModel = "fashion_mnist/model.onnx";

std::string GoodStrategy() { return ReadBytes(Recipe("fashion_mnist/train.yaml")); }

// Position of the first occurrence of `text` in the strategy: "FILE:LINE:COLUMN: error: ".
std::string At(const std::string& path, const std::string& text, size_t skip = 0) {
  const std::string source = ReadBytes(path);
  const size_t at = source.find(text);
  EXPECT_NE(at, std::string::npos) << text;
  if (at == std::string::npos) return "nowhere";
  size_t line = 1;
  size_t column = 1;
  for (size_t i = 0; i < at + skip; ++i) {
    column = source[i] == '\n' ? 1 : column + 1;
    line += source[i] == '\n' ? 1 : 0;
  }
  return path + ":" + std::to_string(line) + ":" + std::to_string(column) + ": error: ";
}

TEST(Inspect, TextNamesInputsParametersAndOps) {
  const CliRun mnist = Hyperc({"inspect", Recipe(kModel)});
  EXPECT_EQ(mnist.exit_code, 0);
  EXPECT_THAT(mnist.out,
              AllOf(HasSubstr("image"), HasSubstr("float[batch,1,28,28]"),
                    HasSubstr("conv1.weight"), HasSubstr("bn1.running_mean"),
                    HasSubstr("BatchNormalization"), HasSubstr("173690 elements trained")));
  const CliRun gpt = Hyperc({"inspect", Recipe("bytes_gpt/model.onnx")});
  EXPECT_EQ(gpt.exit_code, 0);
  EXPECT_THAT(gpt.out, AllOf(HasSubstr("input_ids"), HasSubstr("wte.weight"), HasSubstr("batch"),
                             HasSubstr("644224 elements trained")));
}

TEST(Inspect, JsonHasTheDocumentedKeys) {
  for (const char* recipe : {"fashion_mnist", "bytes_gpt"}) {
    const CliRun run =
        Hyperc({"inspect", Recipe(std::string(recipe) + "/model.onnx"), "--format", "json"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const Json report = Json::parse(run.out);
    for (const char* key :
         {"path", "ir_version", "opsets", "producer", "inputs", "outputs", "dims", "parameters",
          "ops", "problems", "messages", "trained_elements", "frozen_elements"}) {
      EXPECT_TRUE(report.contains(key)) << key;
    }
    EXPECT_EQ(report["problems"].size(), 0u) << report["problems"];
    EXPECT_EQ(report["messages"].size(), 0u) << report["messages"];
    EXPECT_EQ(report["outputs"][0]["name"], "logits");
  }
}

TEST(Inspect, DimsAreBoundOnTheCommandLine) {
  EXPECT_EQ(Hyperc({"inspect", Recipe(kModel), "--dim", "batch=4"}).exit_code, 0);
  for (const char* dim : {"batch", "batch=", "=3", "batch=0", "batch=x", "batch=3x", "batch=-1",
                          "batch=99999999999999999999"}) {
    const CliRun run = Hyperc({"inspect", Recipe(kModel), "--dim", dim});
    EXPECT_EQ(run.exit_code, 2) << dim;
    EXPECT_THAT(run.err, HasSubstr("write NAME=EXTENT")) << dim;
  }
}

TEST(Check, RecipesHaveNoErrors) {
  for (const std::string recipe : {"fashion_mnist", "bytes_gpt"}) {
    const CliRun run = Hyperc(
        {"check", Recipe(recipe + "/train.yaml"), "--model", Recipe(recipe + "/model.onnx")});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr("no errors"));
  }
}

TEST(Check, MistakesOfTheFileAllAtOnceWithPlaces) {
  std::string text = GoodStrategy();
  text = Replaced(text, "  seed: 1\n", "  seed: 1\n  sede: 1\n");
  text = Replaced(text, "lr: 4e-3", "lr: fast");
  text = Replaced(text, "  steps: 1400\n", "  steps: 1400\n  steps: 3\n");
  text = Replaced(text, "kind: idx", "kind: idy");
  const std::string path = Scratch("mistakes.yaml");
  WriteBytes(path, text);
  for (const bool with_model : {false, true}) {
    std::vector<std::string> arguments = {"check", path};
    if (with_model) arguments.insert(arguments.end(), {"--model", Recipe(kModel)});
    const CliRun run = Hyperc(arguments);
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.err, AllOf(HasSubstr(At(path, "sede: 1") + "unknown key 'sede'"),
                               HasSubstr("did you mean 'seed'"), HasSubstr(At(path, "fast")),
                               HasSubstr(At(path, "steps: 3")), HasSubstr("is given twice"),
                               HasSubstr(At(path, "idy")), HasSubstr("did you mean 'idx'")));
  }
}

// Names that only the model knows point at the strategy all the same, in one run.
TEST(Check, NamesThatTheModelLacksPointAtTheStrategy) {
  std::string text = GoodStrategy();
  text = Replaced(text, "dims: {batch: 64}",
                  "dims: {batc: 64}\n  parameters:\n    freeze: [\"conv9.*\"]");
  text = Replaced(text, "logits: logits", "logits: logit");
  text = Replaced(text, "    labels: {file: train", "    lables: {file: train");
  const std::string path = Scratch("names.yaml");
  WriteBytes(path, text);
  const std::vector<std::vector<std::string>> commands = {
      {"check", path, "--model", Recipe(kModel)},
      {"compile", Recipe(kModel), "-s", path, "-o", Scratch("never.bundle")}};
  for (const std::vector<std::string>& command : commands) {
    const CliRun run = Hyperc(command);
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err,
                AllOf(HasSubstr(At(path, "batc: 64", 6) + "no input has a symbolic dim 'batc'"),
                      HasSubstr("did you mean 'batch'?"),
                      HasSubstr("symbolic dims without a value: 'batch'"),
                      HasSubstr(At(path, "logits: logit,", 8) +
                                "the loss names tensor 'logit', which the model does not have"),
                      HasSubstr("did you mean 'logits'?"),
                      HasSubstr(At(path, "\"conv9") + "the pattern 'conv9.*' matches none")));
    EXPECT_THAT(run.err, AllOf(HasSubstr("data.inputs names 'lables'"),
                               HasSubstr("did you mean 'labels'?")));
    // Every error has its place in the strategy.
    EXPECT_THAT(run.err, Not(HasSubstr("model.onnx: error")));
  }
}

std::vector<std::vector<std::string>> BothCommands(const std::string& strategy,
                                                   const std::string& model) {
  return {{"check", strategy, "--model", model},
          {"compile", model, "-s", strategy, "-o", Scratch("never.bundle")}};
}

// A mistake in the file does not hide what only the model or the disk knows.
TEST(Check, MistakesOfTheFileOfNamesAndOfDataInOneRun) {
  std::string text = GoodStrategy();
  text = Replaced(text, "lr: 4e-3", "lr: fast");
  text = Replaced(text, "dims: {batch: 64}",
                  "dims: {batch: 64, sqe: 3}\n  parameters:\n    freeze: [\"conv9.*\"]");
  text = Replaced(text, "logits: logits", "logits: logit");
  text = Replaced(text, "    labels: {file: train", "    lables: {file: nowhere/train");
  const std::string path = Scratch("all.yaml");
  WriteBytes(path, text);
  const auto everything =
      AllOf(HasSubstr(At(path, "fast")), HasSubstr(At(path, "sqe: 3", 5)),
            HasSubstr(At(path, "\"conv9") + "the pattern 'conv9.*' matches none"),
            HasSubstr(At(path, "logits: logit,", 8) + "the loss names tensor 'logit'"),
            HasSubstr("data.inputs names 'lables'"),
            HasSubstr("nowhere/train-labels-idx1-ubyte.gz' does not exist here"));
  for (const std::vector<std::string>& command : BothCommands(path, Recipe(kModel))) {
    const CliRun run = Hyperc(command);
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.err, everything);
  }
  // The same where also the extents and the kind of the loss are refused: names are still judged.
  text = Replaced(Replaced(text, "batch: 64", "batch: many"), "kind: cross_entropy", "kind: cross");
  WriteBytes(path, text);
  for (const std::vector<std::string>& command : BothCommands(path, Recipe(kModel))) {
    const CliRun run = Hyperc(command);
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.err, AllOf(HasSubstr(At(path, "many")), HasSubstr(At(path, "cross,")),
                               HasSubstr("no input has a symbolic dim 'sqe'"),
                               HasSubstr("the pattern 'conv9.*' matches none"),
                               HasSubstr("the loss names tensor 'logit'")));
  }
}

// What was refused is reported once and has no false consequences.
TEST(Check, ARefusedEntryIsNotMissed) {
  struct Case {
    std::string from, to, says;
  };
  const std::vector<Case> cases = {
      {"batch: 64", "batch: many", "'model.dims.batch' is 'many'"},
      {"  dims: {batch: 64}", "  dim: {batch: 64}", "unknown key 'dim' in 'model'"},
      {"model:\n", "modle:\n", "did you mean 'model'?"},
      {"labels: labels}", "lables: labels}", "did you mean 'labels'?"},
      {"train:\n  loss", "trian:\n  loss", "did you mean 'train'?"},
      {"  inputs:  ", "  input:  ", "did you mean 'inputs'?"},
      {"      file: train-images", "      fiel: train-images", "did you mean 'file'"},
  };
  const std::string path = Scratch("refused.yaml");
  for (const Case& c : cases) {
    WriteBytes(path, Replaced(GoodStrategy(), c.from, c.to));
    const CliRun run = Hyperc({"check", path, "--model", Recipe(kModel)});
    EXPECT_EQ(run.exit_code, 1) << c.to;
    EXPECT_THAT(run.err, HasSubstr(c.says)) << c.to;
    EXPECT_THAT(run.err,
                AllOf(Not(HasSubstr("without a value")), Not(HasSubstr("has no data for")),
                      Not(HasSubstr("which is no input")), Not(HasSubstr("the loss names"))))
        << c.to;
  }
}

// Data may lie on another machine, or be set at launch: a warning, whatever else is wrong.
TEST(Check, DataFilesThatAreNotHereAreNamed) {
  const std::string path = Scratch("data.yaml");
  WriteBytes(path, Replaced(GoodStrategy(), "path: /usr/share/datasets/fashion-mnist",
                            "path: " + Scratch("data")));
  WriteBytes(Scratch("data/train-images-idx3-ubyte.gz"), "x");
  const CliRun run = Hyperc({"check", path, "--model", Recipe(kModel)});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* file : {"train-labels", "t10k-images", "t10k-labels"}) {
    EXPECT_THAT(run.err, HasSubstr("warning: data file '" + Scratch("data/") + file)) << file;
  }
  EXPECT_THAT(run.err, Not(HasSubstr("train-images")));
  const CliRun both = Hyperc({"check", path, "--model", "no.onnx"});
  EXPECT_EQ(both.exit_code, 1);
  EXPECT_THAT(both.err, HasSubstr("no.onnx"));
}

TEST(Check, LabelsWithoutDataPointAtTheLoss) {
  const std::string path = Scratch("labels.yaml");
  WriteBytes(path, Replaced(GoodStrategy(), "labels: labels}", "labels: lable}"));
  const CliRun run = Hyperc({"check", path, "--model", Recipe(kModel)});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr(At(path, "labels: lable}", 8) +
                                       "'lable' is no tensor of the model and data.inputs has no "
                                       "data for it"),
                             HasSubstr("data.inputs names 'labels', which is no input")));
}

TEST(Check, AnInputWithoutDataPointsAtTheDataBlock) {
  const std::string path = Scratch("inputs.yaml");
  WriteBytes(path, Replaced(GoodStrategy(), "    image:\n      file: train",
                            "    imag:\n      file: train"));
  const CliRun run = Hyperc({"check", path, "--model", Recipe(kModel)});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("data.inputs has no data for the model's input 'image'"),
                             HasSubstr("data.inputs names 'imag'"),
                             HasSubstr("did you mean 'image'?"), HasSubstr(path + ":")));
}

// An input of which only the shape counts has no room for data.
TEST(Check, DataForAnInputThatNothingReads) {
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(ReadBytes(Recipe(kModel))));
  *model.mutable_graph()->add_input() = model.graph().input(0);
  model.mutable_graph()->mutable_input(1)->set_name("mask");
  WriteBytes(Scratch("mask.onnx"), model.SerializeAsString());
  const std::string path = Scratch("mask.yaml");
  WriteBytes(path, GoodStrategy());
  const CliRun without = Hyperc({"check", path, "--model", Scratch("mask.onnx")});
  EXPECT_EQ(without.exit_code, 0) << without.err;
  WriteBytes(path, Replaced(GoodStrategy(), "    labels: {file: train",
                            "    mask: {file: m.gz}\n    labels: {file: train"));
  const CliRun with = Hyperc({"check", path, "--model", Scratch("mask.onnx")});
  EXPECT_EQ(with.exit_code, 1);
  EXPECT_THAT(with.err, AllOf(HasSubstr("nothing that is computed depends on"), HasSubstr("'mask'"),
                              HasSubstr(path + ":")));
}

TEST(Check, ALossOfTheWrongTypeSaysWhatItIs) {
  const std::string path = Scratch("scalar.yaml");
  WriteBytes(path,
             Replaced(GoodStrategy(), "loss: {kind: cross_entropy, logits: logits, labels: labels}",
                      "loss: {output: logits}"));
  const CliRun run = Hyperc({"check", path, "--model", Recipe(kModel)});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr(At(path, "logits}")), HasSubstr("a scalar is expected"),
                             HasSubstr("f32[64,10]")));
}

TEST(Check, MissingFilesAreNamed) {
  const CliRun strategy = Hyperc({"check", Scratch("none.yaml")});
  EXPECT_EQ(strategy.exit_code, 1);
  EXPECT_THAT(strategy.err, HasSubstr(Scratch("none.yaml")));
  const CliRun model = Hyperc({"check", Recipe("fashion_mnist/train.yaml"), "--model", "no.onnx"});
  EXPECT_EQ(model.exit_code, 1);
  EXPECT_THAT(model.err, HasSubstr("no.onnx"));
}

}  // namespace
}  // namespace hyper::tools
