// A job of the toy model on loopback ranks, and a reporter that remembers.
#pragma once

#include <array>
#include <atomic>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/job.h"
#include "runtime/loopback_communicator.h"
#include "tests/runtime/fake_executor.h"
#include "tests/runtime/test_files.h"

namespace hyper::runtime::testing {

class Recorder : public Reporter {
 public:
  void OnStart(const StartInfo& info) override { start = info; }
  void OnStep(const StepReport& report) override {
    steps.push_back(report.step);
    losses.push_back(report.loss);
    if (on_step) on_step(report.step);
  }
  void OnEval(const EvalReport& report) override { evals.push_back(report); }
  void OnCheckpoint(int64_t step, const std::string&) override { saved.push_back(step); }
  void OnNote(const std::string& text) override { notes.push_back(text); }

  StartInfo start;
  std::vector<int64_t> steps;
  std::vector<double> losses;
  std::vector<EvalReport> evals;
  std::vector<int64_t> saved;
  std::vector<std::string> notes;
  std::function<void(int64_t step)> on_step;
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
    for (size_t rank = 0; rank < recorders_.size(); ++rank) {
      if (on_step_) recorders_[rank].on_step = [this, rank](int64_t s) { on_step_(rank, s); };
    }
    const Status status = RunOnRanks(ranks, {}, [&](Communicator& communicator) {
      const size_t rank = static_cast<size_t>(communicator.rank());
      FakeExecutor executor(model_);
      JobOptions mine = options;
      mine.communicator = &communicator;
      mine.reporter = &recorders_[rank];
      if (rank < stops_.size()) mine.stop = &stops_[rank];
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
  std::function<void(size_t rank, int64_t step)> on_step_;  // called on the rank after each step
  std::array<std::atomic<bool>, 4> stops_{};                // per rank: asked to stop
};

inline std::vector<nlohmann::json> Records(const std::string& path) {
  std::vector<nlohmann::json> records;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) records.push_back(nlohmann::json::parse(line));
  return records;
}

}  // namespace hyper::runtime::testing
