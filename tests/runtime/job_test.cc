#include "runtime/job.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/loopback_communicator.h"
#include "tests/runtime/fake_executor.h"
#include "tests/runtime/test_files.h"

namespace hyper::runtime {
namespace {

using ::testing::AllOf;
using testing::FakeExecutor;
using ::testing::HasSubstr;
using testing::TestFolder;

class Recorder : public Reporter {
 public:
  void OnStart(const StartInfo& info) override { start = info; }
  void OnStep(const StepReport& report) override { steps.push_back(report.step); }
  void OnEval(const EvalReport& report) override { evals.push_back(report); }
  void OnCheckpoint(int64_t step, const std::string&) override { saved.push_back(step); }
  void OnNote(const std::string& text) override { notes.push_back(text); }

  StartInfo start;
  std::vector<int64_t> steps;
  std::vector<EvalReport> evals;
  std::vector<int64_t> saved;
  std::vector<std::string> notes;
};

// A run folder with launch keys for the toy model on made-up data.
class JobTest : public ::testing::Test {
 protected:
  strategy::LaunchConfig Launch() const {
    strategy::LaunchConfig launch;
    launch.train.emplace();
    launch.train->optimizer.lr = 0.1;
    launch.train->micro_batches = 2;
    launch.train->seed = 3;
    launch.data.emplace();
    launch.data->kind = strategy::DataKind::kSynthetic;
    launch.data->prefetch = 2;
    launch.data->inputs["x"].field = "normal";
    launch.data->inputs["labels"].field = "integers";
    launch.data->inputs["labels"].high = 4;
    launch.data->eval.emplace();
    launch.run.dir = folder_.File("run");
    launch.run.steps = 6;
    return launch;
  }

  // Runs on `ranks` ranks; outcome of rank 0.
  Result<JobResult> Run(int ranks, const strategy::LaunchConfig& launch, JobOptions options = {}) {
    std::vector<std::optional<JobResult>> results(static_cast<size_t>(ranks));
    std::vector<Status> statuses(static_cast<size_t>(ranks));
    recorders_.assign(static_cast<size_t>(ranks), {});
    const Status status = RunOnRanks(ranks, {}, [&](Communicator& communicator) {
      const size_t rank = static_cast<size_t>(communicator.rank());
      FakeExecutor executor(model_);
      JobOptions mine = options;
      mine.communicator = &communicator;
      mine.reporter = &recorders_[rank];
      Result<JobResult> result = RunJobOn(&executor, "toy", 1, launch, mine);
      if (result.ok()) results[rank] = std::move(result).value();
      statuses[rank] = result.ok() ? Status::Ok() : result.status();
      return Status::Ok();
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
    for (const Status& s : statuses) EXPECT_EQ(s.ToString(), statuses[0].ToString());
    if (!statuses[0].ok()) return statuses[0];
    return *std::move(results[0]);
  }

  const TestFolder folder_;
  testing::FakeOptions model_;
  std::vector<Recorder> recorders_;
};

std::vector<nlohmann::json> Records(const std::string& path) {
  std::vector<nlohmann::json> records;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) records.push_back(nlohmann::json::parse(line));
  return records;
}

TEST_F(JobTest, TrainsEvaluatesAndSaves) {
  strategy::LaunchConfig launch = Launch();
  launch.run.eval_every = 4;
  launch.run.checkpoint_every = 2;
  launch.run.checkpoint_keep = 2;
  const auto result = Run(2, launch);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->steps, 6);
  EXPECT_EQ(result->losses.size(), 6u);
  EXPECT_EQ(result->checkpoint, folder_.File("run/checkpoints/step-00000006"));
  EXPECT_EQ(result->tensors.size(), 4u);
  ASSERT_TRUE(result->eval.has_value());
  EXPECT_EQ(result->eval->samples, kSyntheticSamples);
  for (const Recorder& recorder : recorders_) {
    EXPECT_THAT(recorder.steps, ::testing::ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_EQ(recorder.evals.size(), 2u);  // after 4 and at the end
    EXPECT_EQ(recorder.start.micro_batches, 2);
    EXPECT_EQ(recorder.start.replicas, 2);
    EXPECT_EQ(recorder.start.trained_parameters, 16);
    EXPECT_EQ(recorder.start.frozen_parameters, 3);
    EXPECT_EQ(recorder.start.hosts.size(), 2u);
  }
  EXPECT_THAT(recorders_[0].saved, ::testing::ElementsAre(2, 4, 6));
  EXPECT_TRUE(recorders_[1].saved.empty());
  EXPECT_THAT(*RealFileSystem()->List(folder_.File("run/checkpoints")),
              ::testing::ElementsAre("latest", "step-00000004", "step-00000006"));
  const auto records = Records(folder_.File("run/metrics.jsonl"));
  ASSERT_EQ(records.size(), 8u);
  EXPECT_EQ(records[0]["loss"].get<double>(), result->losses[0]);
  EXPECT_EQ(records[4]["kind"], "eval");
  EXPECT_EQ(records[7]["loss"].get<double>(), result->eval->loss);
}

TEST_F(JobTest, ResumedRunEqualsAnUnbrokenOne) {
  const auto whole = Run(1, Launch());
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  JobOptions first;
  first.overrides = {"run.dir=" + folder_.File("first")};
  first.steps = 2;
  const auto half = Run(1, Launch(), first);
  ASSERT_TRUE(half.ok()) << half.status().ToString();
  JobOptions second;
  second.checkpoint = folder_.File("first/checkpoints");
  // The same global batch over two replicas.
  second.overrides = {"run.dir=" + folder_.File("second"), "train.micro_batches=1"};
  const auto rest = Run(2, Launch(), second);
  ASSERT_TRUE(rest.ok()) << rest.status().ToString();
  ASSERT_EQ(rest->losses.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(rest->losses[i], whole->losses[i + 2], 1e-12);
  EXPECT_THAT(recorders_[0].steps, ::testing::ElementsAre(3, 4, 5, 6));
}

TEST_F(JobTest, EvalOnlyLeavesTheStateAlone) {
  ASSERT_TRUE(Run(1, Launch()).ok());
  JobOptions options;
  options.eval_only = true;
  options.checkpoint = folder_.File("run/checkpoints");
  const auto result = Run(2, Launch(), options);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->steps, 6);
  EXPECT_TRUE(result->losses.empty());
  ASSERT_TRUE(result->eval.has_value());
  const auto records = Records(folder_.File("run/metrics.jsonl"));
  EXPECT_NEAR(result->eval->loss, records.back()["loss"].get<double>(), 1e-12);
}

TEST_F(JobTest, GlobalBatchIsDerivedFromTheLaunch) {
  JobOptions options;
  options.overrides = {"train.global_batch=16"};
  ASSERT_TRUE(Run(2, Launch(), options).ok());
  EXPECT_EQ(recorders_[0].start.micro_batches, 4);
  const auto refused = Run(3, Launch(), options);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("replica counts that do: 1, 2, 4, 8"));
}

TEST_F(JobTest, WrongInputIsRefusedBeforeTheFirstStep) {
  const auto message = [&](strategy::LaunchConfig launch, JobOptions options = {}) {
    const auto result = Run(2, launch, options);
    EXPECT_FALSE(result.ok());
    EXPECT_TRUE(recorders_[0].steps.empty());
    return result.status().message();
  };
  strategy::LaunchConfig launch = Launch();
  launch.run.steps.reset();
  EXPECT_THAT(message(launch), HasSubstr("--steps"));
  launch = Launch();
  launch.data->inputs["labels"].high = 5;
  EXPECT_THAT(message(launch), AllOf(HasSubstr("label 4"), HasSubstr("accepted are 0 to 3")));
  launch = Launch();
  launch.data->inputs["label"] = launch.data->inputs["labels"];
  launch.data->inputs.erase("labels");
  EXPECT_THAT(message(launch), HasSubstr("no data for input 'labels'"));
  launch = Launch();
  launch.data.reset();
  EXPECT_THAT(message(launch), HasSubstr("no data"));
  launch = Launch();
  launch.data->eval.reset();
  launch.run.eval_every = 2;
  EXPECT_THAT(message(launch), HasSubstr("data.eval"));
  JobOptions options;
  options.overrides = {"train.optimizer.weight_decay=0.1"};
  EXPECT_THAT(message(Launch(), options), HasSubstr("compile again"));
  options.overrides = {"run.step=3"};
  EXPECT_THAT(message(Launch(), options), HasSubstr("run.steps"));
  options = {};
  options.checkpoint = folder_.File("nothing");
  EXPECT_THAT(message(Launch(), options), HasSubstr("nothing"));
}

TEST_F(JobTest, OneRanksFailureIsToldToAll) {
  std::vector<Status> statuses(3);
  const Status status = RunOnRanks(3, {}, [&](Communicator& communicator) {
    const Status mine = communicator.rank() == 1 ? NotFound("no such disk") : Status::Ok();
    statuses[static_cast<size_t>(communicator.rank())] = AgreeOn(&communicator, mine);
    return Status::Ok();
  });
  ASSERT_TRUE(status.ok());
  for (const Status& s : statuses) {
    EXPECT_EQ(s.code(), StatusCode::kNotFound);
    EXPECT_EQ(s.message(), "rank 1: no such disk");
  }
}

TEST_F(JobTest, TraceShowsInstructionsAndReduces) {
  JobOptions options;
  options.trace = folder_.File("trace.json");
  ASSERT_TRUE(Run(2, Launch(), options).ok());
  for (const char* name : {"trace.json.rank-0000", "trace.json.rank-0001"}) {
    std::ifstream file(folder_.File(name));
    const auto trace = nlohmann::json::parse(file);
    int reduces = 0, computes = 0;
    for (const auto& event : trace["traceEvents"]) {
      if (event.value("cat", "") == "reduce") ++reduces;
      if (event.value("cat", "") == "weight_grad") ++computes;
      if (event["ph"] == "X") {
        EXPECT_GE(event["dur"].get<double>(), 0);
      }
    }
    EXPECT_EQ(reduces, 2);
    EXPECT_EQ(computes, 4);  // two micro-batches of two backward instructions
  }
}

TEST_F(JobTest, DryRunDoesNothing) {
  JobOptions options;
  options.dry_run = true;
  const auto result = Run(1, Launch(), options);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(recorders_[0].steps.empty());
  EXPECT_FALSE(RealFileSystem()->Exists(folder_.File("run")));
}

}  // namespace
}  // namespace hyper::runtime
