// hyperc with model files that are cut, damaged or made to harm, and with outputs it cannot write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "onnx/onnx_pb.h"
#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::string GoodModel() { return ReadBytes(Recipe("fashion_mnist/model.onnx")); }

CliRun CheckWith(const std::string& model_path) {
  return Hyperc({"check", Recipe("fashion_mnist/train.yaml"), "--model", model_path});
}

// What every refusal looks like: code 1, the file is named, nothing on stdout.
void ExpectRefused(const CliRun& run, const std::string& path, const std::string& says) {
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, AllOf(HasSubstr(path), HasSubstr("error: "), HasSubstr(says)));
}

TEST(BadModel, CutAnywhere) {
  const std::string good = GoodModel();
  const std::string path = Scratch("cut.onnx");
  std::vector<size_t> lengths = {0, 1, 2, 7, 50, good.size() - 1};
  for (size_t i = 1; i < 32; ++i) lengths.push_back(good.size() * i / 32);
  for (const size_t length : lengths) {
    WriteBytes(path, good.substr(0, length));
    const CliRun run = Hyperc({"inspect", path});
    ExpectRefused(run, path, "");
  }
}

// Any byte may be wrong: the program answers, it is not killed.
TEST(BadModel, DamagedBytesNeverCrash) {
  const std::string good = GoodModel();
  const std::string path = Scratch("damaged.onnx");
  std::mt19937 random(5);
  // The graph's structure stands before and after the weights.
  const size_t kHead = 6000;
  for (int round = 0; round < 80; ++round) {
    std::string bad = good;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % std::min(kHead, bad.size());
      bad[round % 2 == 0 ? at : bad.size() - 1 - at] = static_cast<char>(random() % 256);
    }
    WriteBytes(path, bad);
    const CliRun run = CheckWith(path);
    EXPECT_TRUE(run.exit_code == 0 || run.exit_code == 1) << round << ": " << run.exit_code << "\n"
                                                          << run.err;
    if (run.exit_code == 1) {
      EXPECT_NE(run.err, "") << round;
    }
  }
}

struct Edit {
  std::string name;
  std::function<void(onnx::ModelProto*)> apply;
  std::vector<std::string> says;
};

onnx::NodeProto* NodeOf(onnx::ModelProto* model, const std::string& op) {
  for (onnx::NodeProto& node : *model->mutable_graph()->mutable_node()) {
    if (node.op_type() == op) return &node;
  }
  ADD_FAILURE() << "no " << op;
  return model->mutable_graph()->add_node();
}

TEST(BadModel, HostileFieldsAreNamed) {
  const std::vector<Edit> edits = {
      {"weights that claim more than they have",
       [](onnx::ModelProto* m) {
         m->mutable_graph()->mutable_initializer(0)->set_dims(0, 1 << 30);
       },
       {"initializer", "conv1.weight"}},
      {"a negative extent",
       [](onnx::ModelProto* m) { m->mutable_graph()->mutable_initializer(0)->set_dims(0, -16); },
       {"conv1.weight", "-16"}},
      {"extents whose product overflows",
       [](onnx::ModelProto* m) {
         for (int d = 0; d < 4; ++d) {
           m->mutable_graph()->mutable_initializer(0)->set_dims(d, int64_t{1} << 40);
         }
       },
       {"conv1.weight"}},
      {"weights outside the model's folder",
       [](onnx::ModelProto* m) {
         onnx::TensorProto* tensor = m->mutable_graph()->mutable_initializer(0);
         tensor->clear_raw_data();
         tensor->set_data_location(onnx::TensorProto::EXTERNAL);
         auto* entry = tensor->add_external_data();
         entry->set_key("location");
         entry->set_value("../../../../etc/passwd");
       },
       {"conv1.weight", "../../../../etc/passwd"}},
      {"weights in a file that is not there",
       [](onnx::ModelProto* m) {
         onnx::TensorProto* tensor = m->mutable_graph()->mutable_initializer(0);
         tensor->clear_raw_data();
         tensor->set_data_location(onnx::TensorProto::EXTERNAL);
         auto* entry = tensor->add_external_data();
         entry->set_key("location");
         entry->set_value("weights.bin");
       },
       {"conv1.weight", "weights.bin"}},
      {"an operator nobody knows",
       [](onnx::ModelProto* m) { NodeOf(m, "Relu")->set_op_type("Relo"); },
       {"Relo", "did you mean 'Relu'"}},
      {"a tensor nobody makes",
       [](onnx::ModelProto* m) { NodeOf(m, "Relu")->set_input(0, "ghost"); },
       {"ghost"}},
      {"a cycle",
       [](onnx::ModelProto* m) {
         onnx::NodeProto* relu = NodeOf(m, "Relu");
         relu->set_input(0, relu->output(0));
       },
       {"cycle"}},
      {"an opset of the future",
       [](onnx::ModelProto* m) { m->mutable_opset_import(0)->set_version(9999); },
       {"9999"}},
      {"an opset of the past",
       [](onnx::ModelProto* m) { m->mutable_opset_import(0)->set_version(3); },
       {"opset", "3", "7"}},
      {"weights of the wrong rank",
       [](onnx::ModelProto* m) {
         auto* dims = m->mutable_graph()->mutable_initializer(0)->mutable_dims();
         dims->Clear();
         dims->Add(144);
       },
       {"Conv"}},
      {"strides of zero",
       [](onnx::ModelProto* m) {
         for (auto& a : *NodeOf(m, "Conv")->mutable_attribute()) {
           if (a.name() == "strides") a.set_ints(0, 0);
         }
       },
       {"Conv", "strides"}},
      {"pads that do not fit",
       [](onnx::ModelProto* m) {
         for (auto& a : *NodeOf(m, "Conv")->mutable_attribute()) {
           if (a.name() == "pads") a.set_ints(0, int64_t{1} << 62);
         }
       },
       {"Conv"}},
  };
  for (const Edit& edit : edits) {
    SCOPED_TRACE(edit.name);
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(GoodModel()));
    edit.apply(&model);
    const std::string path = Scratch("hostile/model.onnx");
    WriteBytes(path, model.SerializeAsString());
    const CliRun run = CheckWith(path);
    ExpectRefused(run, path, "");
    for (const std::string& part : edit.says) EXPECT_THAT(run.err, HasSubstr(part));
  }
}

TEST(BadModel, ForeignFilesAreRefused) {
  const std::string text = Scratch("text.onnx");
  WriteBytes(text, "this is no model\n");
  ExpectRefused(Hyperc({"inspect", text}), text, "");
  const std::string folder = Scratch("folder.onnx");
  fs::create_directories(folder);
  const CliRun run = Hyperc({"inspect", folder});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr(folder));
}

TEST(BadOutput, IsNamed) {
  const auto compile_to = [](const std::string& out) {
    return Hyperc({"compile", Recipe("fashion_mnist/model.onnx"), "-s",
                   Recipe("fashion_mnist/train.yaml"), "-o", out});
  };
  // Below a file; a folder that is something else; a file.
  WriteBytes(Scratch("file"), "x");
  WriteBytes(Scratch("photos/holiday.jpg"), "x");
  for (const std::string& out : {Scratch("file/job.bundle"), Scratch("photos"), Scratch("file")}) {
    const CliRun run = compile_to(out);
    EXPECT_EQ(run.exit_code, 1) << out << ": " << run.err;
    EXPECT_THAT(run.err, HasSubstr(out));
  }
  EXPECT_EQ(ReadBytes(Scratch("photos/holiday.jpg")), "x");
  EXPECT_EQ(ReadBytes(Scratch("file")), "x");
  const CliRun chart = Hyperc({"show", RecipeBundle("fashion_mnist"), "--svg", "/dev/null/x.svg"});
  EXPECT_EQ(chart.exit_code, 1);
  EXPECT_THAT(chart.err, HasSubstr("/dev/null/x.svg"));
}

TEST(March, AnUnknownProcessorIsRefusedWithTheKnownOnes) {
  const CliRun run = Hyperc({"compile", Recipe("fashion_mnist/model.onnx"), "-s",
                             Recipe("fashion_mnist/train.yaml"), "-o", Scratch("m.bundle"),
                             "--march", "x86-64-v9"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("does not know the processor 'x86-64-v9'"), HasSubstr("known: ")));
  EXPECT_FALSE(fs::exists(Scratch("m.bundle")));
}

}  // namespace
}  // namespace hyper::tools
