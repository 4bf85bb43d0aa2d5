// How a job ends before its last step, and what it leaves: stops on request, failures, the files of
// earlier jobs, outputs that cannot be written.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file_lock.h"
#include "runtime/not_finite.h"
#include "runtime/run_folder.h"
#include "tests/runtime/full_disk.h"
#include "tests/runtime/job_fixture.h"

namespace hyper::runtime {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeExecutor;
using ::testing::HasSubstr;
using testing::JobTest;
using ::testing::Not;
using testing::Records;
using testing::TestFolder;
namespace fs = std::filesystem;

std::vector<std::string> Names(const std::string& folder) {
  return *RealFileSystem()->List(folder);
}

TEST_F(JobTest, AStopAskedOfOneRankEndsAllAfterTheSameStepAndIsSaved) {
  strategy::LaunchConfig launch = Launch();
  launch.run.steps = 1000000;
  for (const size_t asked : {size_t{0}, size_t{2}}) {
    stops_[asked] = false;
    on_step_ = [&](size_t rank, int64_t step) {
      if (rank == asked && step == 3) stops_[rank] = true;
    };
    JobOptions options;
    options.overwrite = true;
    const auto result = Run(3, launch, options);
    stops_[asked] = false;
    const std::string saved = folder_.File("run/checkpoints/step-00000004");
    EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
    EXPECT_EQ(result.status().message(),
              "step 4 of 1000000 is done and saved; continue with --checkpoint " + saved);
    for (const auto& recorder : recorders_) EXPECT_THAT(recorder.steps, ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(LoadCheckpoint(RealFileSystem(), saved)->info.step, 4);
    EXPECT_EQ(Records(folder_.File("run/metrics.jsonl")).size(), 4u);
  }
}

TEST_F(JobTest, AStoppedRunGoesOnAsIfItHadNotStopped) {
  ASSERT_TRUE(Run(2, Launch()).ok());
  const std::vector<double> unbroken = recorders_[0].losses;
  on_step_ = [&](size_t rank, int64_t step) {
    if (rank == 1 && step == 2) stops_[rank] = true;
  };
  JobOptions options;
  options.overrides = {"run.dir=" + folder_.File("stopped")};
  EXPECT_EQ(Run(2, Launch(), options).status().code(), StatusCode::kCancelled);
  std::vector<double> losses = recorders_[0].losses;
  EXPECT_EQ(losses.size(), 3u);
  on_step_ = nullptr;
  stops_[1] = false;
  options.checkpoint = folder_.File("stopped/checkpoints");
  const auto rest = Run(2, Launch(), options);  // in the same folder
  ASSERT_TRUE(rest.ok()) << rest.status().ToString();
  losses.insert(losses.end(), recorders_[0].losses.begin(), recorders_[0].losses.end());
  EXPECT_EQ(losses, unbroken);
  EXPECT_EQ(Records(folder_.File("stopped/metrics.jsonl")).size(),
            Records(folder_.File("run/metrics.jsonl")).size());
}

TEST_F(JobTest, AStopAskedDuringTheLastStepChangesNothing) {
  on_step_ = [&](size_t, int64_t step) {
    if (step == 5) stops_[0] = true;
  };
  const auto result = Run(2, Launch());
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->steps, 6);
}

TEST_F(JobTest, TheStateBeforeALossThatIsNotFiniteIsSaved) {
  strategy::LaunchConfig launch = Launch();
  launch.train->optimizer.lr = 1e6;  // the softmax overflows soon
  launch.run.steps = 200;
  const auto result = Run(2, launch);
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  const int64_t last = recorders_[0].steps.empty() ? 0 : recorders_[0].steps.back();
  ASSERT_GT(last, 0);
  const std::string saved = CheckpointPath(folder_.File("run/checkpoints"), last);
  EXPECT_THAT(result.status().message(),
              AllOf(HasSubstr(fmt::format("step {}: the loss is", last + 1)),
                    HasSubstr(fmt::format("; the state after step {} is saved; continue with "
                                          "--checkpoint {}",
                                          last, saved)),
                    Not(HasSubstr("-nan"))));
  const auto loaded = LoadCheckpoint(RealFileSystem(), saved);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->info.step, last);
  for (const auto& [name, tensor] : loaded->tensors) {
    for (size_t at = 0; at < tensor.bytes().size(); at += sizeof(double)) {
      double value;
      std::memcpy(&value, tensor.bytes().data() + at, sizeof(double));
      EXPECT_TRUE(std::isfinite(value)) << name;
    }
  }
}

// Whatever ends a step on all ranks: here a disk that is full when metrics are written.
TEST_F(JobTest, AFailureThatIsNoStepsFaultLosesNoStep) {
  testing::FullDisk disk("metrics", 3);
  JobOptions options;
  options.fs = &disk;
  const auto result = Run(2, Launch(), options);
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(result.status().message(),
              AllOf(HasSubstr("disk full"), HasSubstr("the state after step 3 is saved")));
  EXPECT_EQ(LoadCheckpoint(RealFileSystem(), folder_.File("run/checkpoints"))->info.step, 3);
}

TEST_F(JobTest, AUsedFolderIsRefusedWithTheChoices) {
  ASSERT_TRUE(Run(2, Launch()).ok());
  const std::string before = *RealFileSystem()->ReadAll(folder_.File("run/metrics.jsonl"), 1 << 20);
  for (const bool dry_run : {false, true}) {
    JobOptions options;
    options.dry_run = dry_run;
    const auto again = Run(2, Launch(), options);
    EXPECT_EQ(again.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        again.status().message(),
        AllOf(HasSubstr(folder_.File("run")), HasSubstr("checkpoints (up to step 6)"),
              HasSubstr("--set run.dir="), HasSubstr("--checkpoint "), HasSubstr("--overwrite")));
  }
  EXPECT_EQ(*RealFileSystem()->ReadAll(folder_.File("run/metrics.jsonl"), 1 << 20), before);
  fs::remove_all(folder_.File("run/checkpoints"));
  EXPECT_THAT(Run(1, Launch()).status().message(), HasSubstr("metrics.jsonl"));
  // What a job that did not come to its first step leaves is no obstacle.
  fs::resize_file(folder_.File("run/metrics.jsonl"), 0);
  EXPECT_TRUE(Run(1, Launch()).ok());
}

TEST_F(JobTest, OverwriteLeavesNothingOfTheEarlierJob) {
  strategy::LaunchConfig launch = Launch();
  launch.run.checkpoint_every = 2;
  launch.run.checkpoint_keep = 5;
  ASSERT_TRUE(Run(1, launch).ok());
  JobOptions evaluation;
  evaluation.eval_only = true;
  ASSERT_TRUE(Run(1, launch, evaluation).ok());
  fs::create_directories(folder_.File("run/checkpoints/step-00000009.tmp"));
  launch.run.checkpoint_every = 0;
  launch.run.steps = 3;
  JobOptions options;
  options.overwrite = true;
  // A launch that fails removes nothing.
  options.outputs = {folder_.File("nowhere/x.onnx")};
  EXPECT_FALSE(Run(1, launch, options).ok());
  EXPECT_EQ(Names(folder_.File("run/checkpoints")).size(), 6u);
  options.outputs.clear();
  ASSERT_TRUE(Run(1, launch, options).ok());
  EXPECT_THAT(Names(folder_.File("run/checkpoints")),
              ElementsAre("latest", "step-00000003", "train.lock"));
  EXPECT_THAT(Names(folder_.File("run")),
              ElementsAre("checkpoints", "eval.lock", "metrics.jsonl", "train.lock"));
  EXPECT_EQ(Records(folder_.File("run/metrics.jsonl")).size(), 4u);
}

// From the second last of three checkpoints: the last belongs to another line of training.
TEST_F(JobTest, ContinuingBeforeLaterCheckpointsNeedsOverwrite) {
  strategy::LaunchConfig launch = Launch();
  launch.run.checkpoint_every = 2;
  launch.run.checkpoint_keep = 5;
  ASSERT_TRUE(Run(1, launch).ok());
  launch.run.steps = 5;
  launch.run.checkpoint_every = 0;
  JobOptions options;
  options.checkpoint = folder_.File("run/checkpoints/step-00000004");
  EXPECT_THAT(Run(1, launch, options).status().message(),
              AllOf(HasSubstr("up to step 6"), HasSubstr("step 4"), HasSubstr("--overwrite")));
  options.overwrite = true;
  ASSERT_TRUE(Run(1, launch, options).ok());
  EXPECT_THAT(
      Names(folder_.File("run/checkpoints")),
      ElementsAre("latest", "step-00000002", "step-00000004", "step-00000005", "train.lock"));
  EXPECT_EQ(LoadCheckpoint(RealFileSystem(), folder_.File("run/checkpoints"))->info.step, 5);
  EXPECT_EQ(Records(folder_.File("run/metrics.jsonl")).size(), 6u);  // 5 steps, the evaluation
}

TEST_F(JobTest, ADamagedLastCheckpointDoesNotBlockItsFolder) {
  strategy::LaunchConfig launch = Launch();
  launch.run.checkpoint_every = 2;
  launch.run.checkpoint_keep = 5;
  ASSERT_TRUE(Run(1, launch).ok());
  fs::resize_file(folder_.File("run/checkpoints/step-00000006/model.safetensors"), 10);
  JobOptions options;
  options.checkpoint = folder_.File("run/checkpoints");
  const auto result = Run(1, launch, options);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_THAT(recorders_[0].steps, ElementsAre(5, 6));
  EXPECT_THAT(recorders_[0].notes, ElementsAre(HasSubstr("using an older one")));
}

TEST_F(JobTest, ASecondJobInTheFolderIsRefused) {
  std::filesystem::create_directories(folder_.File("run"));
  {
    const auto lock = FileLock::Take(folder_.File("run/train.lock"), "process 7 on node3");
    ASSERT_TRUE(lock.ok()) << lock.status().ToString();
    const auto second = Run(2, Launch());
    EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(second.status().message(),
                AllOf(HasSubstr(folder_.File("run")), HasSubstr("in use by process 7 on node3")));
    // An evaluation may run beside it.
    JobOptions options;
    options.eval_only = true;
    EXPECT_TRUE(Run(1, Launch(), options).ok());
  }
  EXPECT_TRUE(Run(2, Launch()).ok());  // the holder is gone, its file is not
  // Checkpoints that lie elsewhere are guarded there.
  strategy::LaunchConfig launch = Launch();
  launch.run.dir = folder_.File("second");
  launch.run.checkpoint_dir = folder_.File("shared");
  std::filesystem::create_directories(folder_.File("shared"));
  const auto lock = FileLock::Take(folder_.File("shared/train.lock"), "process 8 on node3");
  EXPECT_THAT(Run(1, launch).status().message(), HasSubstr("in use by process 8 on node3"));
}

TEST_F(JobTest, OutputsAreTriedBeforeTheFirstStep) {
  const std::string file = folder_.Write("file", "x");
  const auto refused = [&](const JobOptions& options) {
    const auto result = Run(2, Launch(), options);
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(ExitCode(result.status().code()), 1) << result.status().ToString();
    EXPECT_TRUE(recorders_[0].steps.empty());
    return result.status().message();
  };
  for (const bool dry_run : {false, true}) {
    JobOptions options;
    options.dry_run = dry_run;
    options.trace = folder_.File("nowhere/trace.json");
    EXPECT_THAT(refused(options), HasSubstr("nowhere/trace.json"));
    options.trace.clear();
    options.outputs = {file + "/x.onnx"};
    EXPECT_THAT(refused(options), HasSubstr("file/x.onnx"));
    options.outputs = {"/dev/null"};
    EXPECT_THAT(refused(options), AllOf(HasSubstr("/dev/null"), HasSubstr("a device")));
    options.outputs = {folder_.path()};
    EXPECT_THAT(refused(options), HasSubstr("a folder"));
    options.outputs.clear();
    options.overrides = {"run.dir=" + file + "/run"};
    EXPECT_THAT(refused(options), AllOf(HasSubstr("run.dir"), HasSubstr("file/")));
    options.overrides = {"run.checkpoint.dir=" + file + "/saved"};
    EXPECT_THAT(refused(options), AllOf(HasSubstr("run.checkpoint.dir"), HasSubstr("file/")));
  }
  EXPECT_EQ(*RealFileSystem()->ReadAll(file, 10), "x");
}

TEST_F(JobTest, ATraceThatFailsLaterIsANote) {
  // The folder goes while the job runs.
  std::filesystem::create_directories(folder_.File("traces"));
  on_step_ = [&](size_t rank, int64_t step) {
    if (rank == 0 && step == 1) std::filesystem::remove_all(folder_.File("traces"));
  };
  JobOptions options;
  options.trace = folder_.File("traces/trace.json");
  const auto result = Run(2, Launch(), options);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->steps, 6);
  EXPECT_THAT(recorders_[0].notes,
              ElementsAre(HasSubstr("rank 0 wrote no trace"), HasSubstr("rank 1 wrote no trace")));
}

TEST_F(JobTest, StepsCountFromTheFirstOfTheTraining) {
  ASSERT_TRUE(Run(1, Launch()).ok());
  JobOptions options;
  options.checkpoint = folder_.File("run/checkpoints");
  for (const int64_t steps : {5, 6}) {
    options.steps = steps;
    EXPECT_THAT(Run(1, Launch(), options).status().message(),
                AllOf(HasSubstr("step-00000006' is at step 6"),
                      HasSubstr(fmt::format("ends at step {}", steps)), HasSubstr("--steps")));
  }
  options.steps = 8;
  ASSERT_TRUE(Run(1, Launch(), options).ok());
  EXPECT_THAT(recorders_[0].steps, ElementsAre(7, 8));
  options = {};
  options.overwrite = true;
  options.steps = 0;  // the initial values, saved
  ASSERT_TRUE(Run(1, Launch(), options).ok());
  EXPECT_TRUE(recorders_[0].steps.empty());
  EXPECT_THAT(Names(folder_.File("run/checkpoints")),
              ElementsAre("latest", "step-00000000", "train.lock"));
}

// Evaluations gather in one file that says whose values they judged.
TEST_F(JobTest, EvaluationsAreALog) {
  ASSERT_TRUE(Run(1, Launch()).ok());
  JobOptions options;
  options.eval_only = true;
  ASSERT_TRUE(Run(1, Launch(), options).ok());
  options.checkpoint = folder_.File("run/checkpoints");
  ASSERT_TRUE(Run(1, Launch(), options).ok());
  const auto records = Records(folder_.File("run/eval.jsonl"));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(records[0]["checkpoint"].is_null());
  EXPECT_EQ(records[0]["step"], 0);
  EXPECT_EQ(records[1]["checkpoint"], folder_.File("run/checkpoints/step-00000006"));
  EXPECT_EQ(records[1]["step"], 6);
}

TEST(FileLock, EndsWithItsHolder) {
  const TestFolder folder;
  const std::string path = folder.File("lock");
  auto first = FileLock::Take(path, ThisProcess());
  ASSERT_TRUE(first.ok());
  const Status second = FileLock::Take(path, "another").status();
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(second.message(), "in use by " + ThisProcess());
  *first = nullptr;
  EXPECT_TRUE(FileLock::Take(path, "another").ok());
  EXPECT_EQ(FileLock::Take(folder.File("no/lock"), "x").status().code(), StatusCode::kNotFound);
}

TEST(NotFinite, TheCauseComesFirst) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = -std::nan("");
  const auto found = [&](const std::function<void(int, FakeExecutor*)>& plant) {
    std::string text;
    const Status status = RunOnRanks(2, {}, [&](Communicator& communicator) {
      FakeExecutor executor({});
      plant(communicator.rank(), &executor);
      HYPER_ASSIGN_OR_RETURN(const std::string mine, FirstNotFinite(executor, &communicator));
      if (communicator.rank() == 0) text = mine;
      return Status::Ok();
    });
    EXPECT_TRUE(status.ok());
    return text;
  };
  EXPECT_EQ(found([](int, FakeExecutor*) {}), "");
  const std::vector<double> gradient = {0, 0, nan, 0};
  EXPECT_EQ(found([&](int, FakeExecutor* executor) {
              executor->SetValues(program::GRADIENT, "bias", gradient);
            }),
            "gradient of 'bias' holds nan");
  EXPECT_EQ(found([&](int rank, FakeExecutor* executor) {
              executor->SetValues(program::GRADIENT, "bias", gradient);
              if (rank == 1) executor->SetValues(program::INPUT, "x", {1, 2, 3, 4, -inf, 6});
            }),
            "input 'x' holds -inf (rank 1)");
  EXPECT_EQ(NumberText(nan), "nan");
}

}  // namespace
}  // namespace hyper::runtime
