#include "runtime/metrics.h"

#include <cmath>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/progress.h"
#include "tests/runtime/test_files.h"

namespace hyper::runtime {
namespace {

using ::testing::HasSubstr;
using testing::TestFolder;

StepReport Step(int64_t step) {
  StepReport report;
  report.step = step;
  report.loss = 1.0 / 3;
  report.lr = 1e-5;
  report.grad_norm = 2.5;
  report.clip_coef = 0.4;
  report.step_ms = 12.3456;
  report.samples_per_s = 1000.25;
  return report;
}

std::vector<nlohmann::json> Records(const std::string& path) {
  std::vector<nlohmann::json> records;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) records.push_back(nlohmann::json::parse(line));
  return records;
}

TEST(Metrics, RecordsArePlainJson) {
  const TestFolder folder;
  const std::string path = folder.File("metrics.jsonl");
  auto writer = MetricsWriter::Create(RealFileSystem(), path, 0);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Write(Step(1)).ok());
  StepReport plain = Step(2);
  plain.grad_norm.reset();
  ASSERT_TRUE((*writer)->Write(plain).ok());
  EvalReport eval;
  eval.step = 2;
  eval.loss = 0.1;
  eval.accuracy = 0.9;
  eval.samples = 10000;
  ASSERT_TRUE((*writer)->Write(eval).ok());
  eval.accuracy.reset();
  eval.loss = NAN;
  ASSERT_TRUE((*writer)->Write(eval).ok());
  ASSERT_TRUE((*writer)->Close().ok());
  const auto records = Records(path);
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0]["kind"], "step");
  EXPECT_EQ(records[0]["step"], 1);
  EXPECT_EQ(records[0]["loss"].get<double>(), 1.0 / 3);  // every bit
  EXPECT_EQ(records[0]["lr"].get<double>(), 1e-5);
  EXPECT_EQ(records[0]["grad_norm"], 2.5);
  EXPECT_EQ(records[0]["clip_coef"], 0.4);
  EXPECT_EQ(records[0]["step_ms"], 12.346);
  EXPECT_EQ(records[0]["samples_per_s"], 1000.25);
  EXPECT_TRUE(records[1]["grad_norm"].is_null());
  EXPECT_EQ(records[2]["kind"], "eval");
  EXPECT_EQ(records[2]["accuracy"], 0.9);
  EXPECT_EQ(records[2]["samples"], 10000);
  EXPECT_TRUE(records[3]["accuracy"].is_null());
  EXPECT_TRUE(records[3]["loss"].is_null());
}

TEST(Metrics, AResumedRunKeepsWhatCameBefore) {
  const TestFolder folder;
  const std::string path = folder.File("metrics.jsonl");
  auto writer = MetricsWriter::Create(RealFileSystem(), path, 0);
  ASSERT_TRUE(writer.ok());
  for (int64_t step = 1; step <= 5; ++step) ASSERT_TRUE((*writer)->Write(Step(step)).ok());
  ASSERT_TRUE((*writer)->Close().ok());
  std::ofstream(path, std::ios::app) << "{\"kind\":\"step\",\"st";  // died while writing
  writer = MetricsWriter::Create(RealFileSystem(), path, 3);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Write(Step(4)).ok());
  ASSERT_TRUE((*writer)->Close().ok());
  const auto records = Records(path);
  ASSERT_EQ(records.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(records[i]["step"], i + 1);
  writer = MetricsWriter::Create(RealFileSystem(), path, 0);
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE(Records(path).empty());
}

StartInfo Start() {
  StartInfo info;
  info.model = "toy";
  info.replicas = 2;
  info.micro_batch = 32;
  info.micro_batches = 4;
  info.steps = 100;
  info.trained_tensors = 12;
  info.trained_parameters = 1234567;
  info.frozen_tensors = 1;
  info.frozen_parameters = 100;
  info.train_samples = 60000;
  info.eval_samples = 10000;
  info.arena_bytes = 3 << 20;
  info.hosts = {"node1", "node1", "node2"};
  info.threads_per_rank = {4, 4, 2};
  return info;
}

TEST(Progress, StartTable) {
  const std::string text = FormatStart(Start());
  EXPECT_THAT(text, HasSubstr("32 x 4 micro-batches x 2 replicas = 256 samples per step"));
  EXPECT_THAT(text, HasSubstr("1,234,567 trained in 12 tensors, 100 frozen in 1 tensor\n"));
  EXPECT_THAT(text, HasSubstr("3 on node1 (ranks 0, 1), node2 (rank 2)"));
  EXPECT_THAT(text, HasSubstr("threads     2 to 4 per rank"));
  EXPECT_THAT(text, HasSubstr("60,000 samples to train on, 10,000 held out"));
  StartInfo wide = Start();
  wide.hosts.assign(8, "n");
  wide.micro_batches = 1;
  EXPECT_THAT(FormatStart(wide), HasSubstr("8 on n (ranks 0-7)"));
  EXPECT_THAT(FormatStart(wide), HasSubstr("32 x 1 micro-batch x"));
}

TEST(Progress, BarFitsEveryWidth) {
  for (int width = 0; width <= 200; ++width) {
    const std::string bar = FormatBar(Step(50), 0, 100, 3725, width);
    EXPECT_LT(static_cast<int>(bar.size()), std::max(width, 1)) << width;
  }
  const std::string bar = FormatBar(Step(50), 0, 100, 3725, 120);
  EXPECT_THAT(bar, HasSubstr("[###############...............] 50/100"));
  EXPECT_THAT(bar, HasSubstr("loss 0.3333"));
  EXPECT_THAT(bar, HasSubstr("1000 samples/s"));
  EXPECT_THAT(bar, HasSubstr("1:02:05 left"));
  EXPECT_EQ(FormatDuration(65.4), "1:05");
}

struct Written {
  std::string text;
  double now = 0;
};

std::unique_ptr<Reporter> MakeReporter(Written* written, bool terminal) {
  TextReporterOptions options;
  options.terminal = terminal;
  options.width = [] { return 60; };
  options.clock = [written] { return written->now; };
  options.log_every = 10;
  return MakeTextReporter([written](std::string_view text) { written->text += text; }, options);
}

TEST(Progress, PlainLinesWithoutATerminal) {
  Written written;
  const auto reporter = MakeReporter(&written, false);
  reporter->OnStart(Start());
  written.text.clear();
  for (int64_t step = 1; step <= 25; ++step) reporter->OnStep(Step(step));
  EXPECT_EQ(std::count(written.text.begin(), written.text.end(), '\n'), 3);  // 1, 10, 20
  EXPECT_EQ(written.text.find('\r'), std::string::npos);
  EXPECT_EQ(written.text.find('\x1b'), std::string::npos);
  EXPECT_THAT(written.text,
              HasSubstr("step 10/100  loss 0.33333  lr 1e-05  norm 2.5  1000 samples/s"));
}

TEST(Progress, TheBarIsRedrawnInPlaceAndLinesStandApart) {
  Written written;
  const auto reporter = MakeReporter(&written, true);
  reporter->OnStart(Start());
  written.text.clear();
  for (int64_t step = 1; step <= 30; ++step) {
    written.now += 0.01;
    reporter->OnStep(Step(step));
  }
  EXPECT_LE(std::count(written.text.begin(), written.text.end(), '\r'), 4);
  EXPECT_EQ(std::count(written.text.begin(), written.text.end(), '\n'), 0);
  EvalReport eval;
  eval.step = 30;
  eval.accuracy = 0.5;
  reporter->OnEval(eval);
  EXPECT_THAT(written.text, HasSubstr("\nstep 30: evaluation loss 0, accuracy 50.00 %"));
}

TEST(Progress, OtherRanksAreSilent) {
  Written written;
  const auto reporter = MakeReporter(&written, false);
  StartInfo info = Start();
  info.rank = 1;
  reporter->OnStart(info);
  reporter->OnStep(Step(10));
  reporter->OnNote("x");
  EXPECT_TRUE(written.text.empty());
}

}  // namespace
}  // namespace hyper::runtime
