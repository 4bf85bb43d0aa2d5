#include "runtime/job.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/loopback_communicator.h"
#include "tests/runtime/job_fixture.h"

namespace hyper::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::JobTest;
using testing::Recorder;
using testing::Records;

TEST_F(JobTest, TrainsEvaluatesAndSaves) {
  strategy::LaunchConfig launch = Launch();
  launch.run.eval_every = 4;
  launch.run.checkpoint_every = 2;
  launch.run.checkpoint_keep = 2;
  const auto result = Run(2, launch);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->steps, 6);
  EXPECT_EQ(recorders_[0].losses.size(), 6u);
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
              ::testing::ElementsAre("latest", "step-00000004", "step-00000006", "train.lock"));
  const auto records = Records(folder_.File("run/metrics.jsonl"));
  ASSERT_EQ(records.size(), 8u);
  EXPECT_EQ(records[0]["loss"].get<double>(), recorders_[0].losses[0]);
  EXPECT_EQ(records[4]["kind"], "eval");
  EXPECT_EQ(records[7]["loss"].get<double>(), result->eval->loss);
}

TEST_F(JobTest, ResumedRunEqualsAnUnbrokenOne) {
  const auto unbroken = Run(1, Launch());
  ASSERT_TRUE(unbroken.ok()) << unbroken.status().ToString();
  const std::vector<double> whole = recorders_[0].losses;
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
  ASSERT_EQ(recorders_[0].losses.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(recorders_[0].losses[i], whole[i + 2], 1e-12);
  EXPECT_EQ(recorders_[0].start.checkpoint, folder_.File("first/checkpoints/step-00000002"));
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
  EXPECT_TRUE(recorders_[0].losses.empty());
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

// The toy's update is SGD: w' = w - lr * (g + decay * w).
TEST_F(JobTest, OptimizerValuesOfTheLaunchReachTheUpdate) {
  const auto losses = [&](double decay, const std::string& assignment, double factor = 1) {
    strategy::LaunchConfig launch = Launch();
    launch.train->optimizer.weight_decay = decay;
    JobOptions options;
    options.overwrite = true;
    if (!assignment.empty()) options.overrides = {assignment};
    options.fault.decay_factor = factor;
    const auto result = Run(2, launch, options);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return recorders_[0].losses;
  };
  const auto compiled = losses(0.05, "");
  EXPECT_EQ(losses(0, "train.optimizer.weight_decay=0.05"), compiled);
  EXPECT_NE(losses(0, ""), compiled);
  EXPECT_NE(losses(0, "train.optimizer.weight_decay=0.05", 1.01), compiled);  // planted fault
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
  options.overrides = {"train.optimizer.weight_decay=-0.1"};
  EXPECT_THAT(
      message(Launch(), options),
      HasSubstr(
          "'train.optimizer.weight_decay' is '-0.1', out of range; expected a number, at least 0"));
  launch = Launch();  // a bundle whose update lacks a value that the optimizer has
  launch.train->optimizer = {strategy::OptimizerKind::kMomentum, 0.1, 0.9};
  EXPECT_THAT(message(launch),
              AllOf(HasSubstr("no scalar 'momentum'"), HasSubstr("compile again")));
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
