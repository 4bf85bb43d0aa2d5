// hyperrun with data that does not fit the model: files, shapes, ranges, labels, launch keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::string Repeat(const std::string& element, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += element;
  return out;
}

const std::string kLabelThree("\x03\0\0\0\0\0\0\0", 8);

// 128 images and labels; the model of the recipe with npy data.
class BadDataTest : public testing::Test {
 protected:
  void SetUp() override {
    WriteBytes(Scratch("data/image.npy"),
               Npy("|u1", "128, 28, 28", std::string(128 * 784, '\x07')));
    WriteBytes(Scratch("data/labels.npy"), Npy("<i8", "128,", Repeat(kLabelThree, 128)));
    bundle_ = Scratch("npy.bundle");
    if (fs::exists(bundle_)) return;
    std::string text = ReadBytes(Recipe("fashion_mnist/train.yaml"));
    text = text.substr(0, text.find("data:\n")) + "data:\n  kind: npy\n  path: " + Scratch("data") +
           "\n  inputs: {image: {file: image.npy, scale: 0.004}, labels: {file: labels.npy}}\n"
           "run: {dir: run, steps: 1}\n";
    WriteBytes(Scratch("npy.yaml"), text);
    const CliRun run = Hyperc(
        {"compile", Recipe("fashion_mnist/model.onnx"), "-s", Scratch("npy.yaml"), "-o", bundle_});
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }

  void ExpectRefused(const std::vector<std::string>& says,
                     const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {bundle_, "--threads", "1", "--set", "run.dir=refused"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CliRun run = Hyperrun(arguments);
    EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
    for (const std::string& part : says) EXPECT_THAT(run.err, HasSubstr(part));
  }

  std::string bundle_;
};

TEST_F(BadDataTest, GoodDataTrains) {
  const CliRun run =
      Hyperrun({bundle_, "--threads", "1", "--overwrite", "--export", Scratch("trained.onnx")});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Hyperc({"inspect", Scratch("trained.onnx")}).exit_code, 0);
  const CliRun exported = Hyperc(
      {"export", bundle_, "--checkpoint", Scratch("run/checkpoints"), "-o", Scratch("again.onnx")});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_TRUE(ReadBytes(Scratch("again.onnx")) == ReadBytes(Scratch("trained.onnx")));
}

TEST_F(BadDataTest, AMissingFile) {
  fs::remove(Scratch("data/image.npy"));
  ExpectRefused({Scratch("data/image.npy")});
}

TEST_F(BadDataTest, AnotherShape) {
  WriteBytes(Scratch("data/image.npy"), Npy("|u1", "128, 14, 56", std::string(128 * 784, '\x07')));
  ExpectRefused({"image.npy", "u8[128,14,56]", "'image'", "f32[64,1,28,28]", "[1,28,28]"});
}

TEST_F(BadDataTest, AnotherNumberOfSamples) {
  WriteBytes(Scratch("data/labels.npy"), Npy("<i8", "100,", Repeat(kLabelThree, 100)));
  ExpectRefused({"128 samples", "has 100", "'labels'"});
}

TEST_F(BadDataTest, AnotherElementType) {
  WriteBytes(Scratch("data/labels.npy"), Npy("<f4", "128,", std::string(128 * 4, '\0')));
  ExpectRefused({"labels.npy", "'labels'", "f32"});
}

TEST_F(BadDataTest, ALabelOutsideTheClasses) {
  for (const auto& [label, text] : std::vector<std::pair<std::string, std::string>>{
           {std::string("\x0a\0\0\0\0\0\0\0", 8), "label 10"},
           {std::string(8, '\xff'), "label -1"}}) {
    WriteBytes(Scratch("data/labels.npy"),
               Npy("<i8", "128,", Repeat(kLabelThree, 77) + label + Repeat(kLabelThree, 50)));
    ExpectRefused({"labels.npy", text, "sample 77", "0 to 9"});
  }
}

TEST_F(BadDataTest, FilesThatAreCutOrForeign) {
  const std::string good = ReadBytes(Scratch("data/image.npy"));
  for (const size_t length : {size_t{0}, size_t{7}, size_t{60}, size_t{1000}, good.size() - 1}) {
    WriteBytes(Scratch("data/image.npy"), good.substr(0, length));
    ExpectRefused({"image.npy"});
  }
  WriteBytes(Scratch("data/image.npy"), "PNG");
  ExpectRefused({"image.npy", "not a NumPy .npy file"});
  WriteBytes(Scratch("data/image.npy"),
             Npy("|u1", "1000000000000, 28, 28", std::string(1000, '\x07')));
  ExpectRefused({"image.npy"});
}

TEST_F(BadDataTest, LaunchKeys) {
  ExpectRefused({"train.optimizer.lrr", "did you mean 'train.optimizer.lr'"},
                {"--set", "train.optimizer.lrr=1"});
  ExpectRefused({"run.steps", "many"}, {"--set", "run.steps=many"});
  ExpectRefused({"train.loss"}, {"--set", "train.loss.logits=x"});
  // 128 samples per step as 64 each: a global batch must be a multiple of 64.
  ExpectRefused({"100", "64"}, {"--set", "train.global_batch=100"});
  ExpectRefused({"data.eval"}, {"--eval"});
  ExpectRefused({"nowhere"}, {"--checkpoint", "nowhere"});
  ExpectRefused({"imgae", "image"}, {"--set", "data.inputs.imgae.file=image.npy"});
}

TEST_F(BadDataTest, OutputsThatCannotBeWritten) {
  ExpectRefused({"/dev/null/run"}, {"--set", "run.dir=/dev/null/run"});
  ExpectRefused({"/dev/null/x.onnx"}, {"--export", "/dev/null/x.onnx"});
}

TEST(BadTokens, ATokenOutsideTheTableIsRefused) {
  const std::string bundle = RecipeBundle("bytes_gpt");
  // 16 bits per token: 300 is no byte.
  std::string tokens;
  for (int i = 0; i < 40 * 128; ++i) tokens += std::string("\x41\x00", 2);
  const std::vector<std::string> arguments = {bundle,  "--threads",
                                              "1",     "--steps",
                                              "1",     "--overwrite",
                                              "--set", "data.dtype=uint16",
                                              "--set", "data.path=" + Scratch("tokens.bin"),
                                              "--set", "data.eval.path=" + Scratch("tokens.bin"),
                                              "--set", "run.dir=" + Scratch("run_tokens")};
  WriteBytes(Scratch("tokens.bin"), tokens);
  EXPECT_EQ(Hyperrun(arguments).exit_code, 0);
  tokens[2 * 700 + 1] = 1;  // 0x141 = 321
  WriteBytes(Scratch("tokens.bin"), tokens);
  const CliRun run = Hyperrun(arguments);
  EXPECT_EQ(run.exit_code, 1) << run.out;
  EXPECT_THAT(run.err, AllOf(HasSubstr("tokens.bin"), HasSubstr("token 321 at index 700"),
                             HasSubstr("outside the model's table"), HasSubstr("-256 to 255")));
}

// Ids that are no labels: only the model says how many entries its table has.
TEST(BadIndices, AnIdOutsideTheTableIsRefused) {
  std::string text = ReadBytes(Recipe("bytes_gpt/train.yaml"));
  text = text.substr(0, text.find("data:\n")) + "data:\n  kind: npy\n  path: " + Scratch("ids") +
         "\n  inputs: {input_ids: {file: ids.npy}, labels: {file: labels.npy}}\n"
         "run: {dir: run_ids, steps: 1}\n";
  WriteBytes(Scratch("ids.yaml"), text);
  const std::string bundle = Scratch("ids.bundle");
  const CliRun compiled =
      Hyperc({"compile", Recipe("bytes_gpt/model.onnx"), "-s", Scratch("ids.yaml"), "-o", bundle});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  const size_t count = 32 * 128;
  std::string ids = Repeat(kLabelThree, count);
  WriteBytes(Scratch("ids/labels.npy"), Npy("<i8", "32, 128", ids));
  const auto run_with = [&](const std::string& id) {
    ids.replace(8 * (5 * 128 + 17), 8, id);
    WriteBytes(Scratch("ids/ids.npy"), Npy("<i8", "32, 128", ids));
    return Hyperrun({bundle, "--threads", "1", "--overwrite"});
  };
  EXPECT_EQ(run_with(kLabelThree).exit_code, 0);
  EXPECT_EQ(run_with(std::string(8, '\xff')).exit_code, 0);  // -1: the last entry
  const CliRun run = run_with(std::string("\x00\x01\0\0\0\0\0\0", 8));
  EXPECT_EQ(run.exit_code, 1) << run.out;
  EXPECT_THAT(run.err, AllOf(HasSubstr("ids.npy"), HasSubstr("index 256 of sample 5"),
                             HasSubstr("position 17"), HasSubstr("-256 to 255")));
}

}  // namespace
}  // namespace hyper::tools
