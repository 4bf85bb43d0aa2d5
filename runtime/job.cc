#include "runtime/job.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <unistd.h>

#include "base/strings.h"
#include "runtime/metrics.h"
#include "runtime/rank_table.h"
#include "runtime/schedule.h"
#include "runtime/trace.h"

namespace hyper::runtime {
namespace {

// The step whose times are traced, counted from the first of the run: past the first touches.
constexpr int64_t kTracedStep = 3;

std::string HostName() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

// One job on one rank. Phases: Prepare (errors are agreed on), then Train and Evaluate.
class Job {
 public:
  Job(Executor* executor, std::string model, int ranks_per_replica, strategy::LaunchConfig launch,
      const JobOptions& options)
      : executor_(executor),
        model_(std::move(model)),
        ranks_per_replica_(ranks_per_replica),
        launch_(std::move(launch)),
        options_(options),
        communicator_(options.communicator) {}

  Result<JobResult> Run() {
    HYPER_RETURN_IF_ERROR(AgreeOn(communicator_, Guard([&] { return Prepare(); })));
    HYPER_RETURN_IF_ERROR(Announce());
    if (options_.dry_run) return std::move(result_);
    if (!options_.eval_only) HYPER_RETURN_IF_ERROR(Train());
    if (evaluator_ != nullptr && last_eval_step_ != steps_done()) {
      HYPER_RETURN_IF_ERROR(Evaluate());
    }
    if (metrics_ != nullptr) Keep(metrics_->Close());
    HYPER_RETURN_IF_ERROR(AgreeOn(communicator_, pending_));
    if (IsRoot()) result_.tensors = CollectTensors(*executor_);
    result_.steps = steps_done();
    return std::move(result_);
  }

 private:
  bool IsRoot() const { return communicator_->rank() == 0; }
  int64_t steps_done() const { return trainer_ != nullptr ? trainer_->step() : start_.step; }

  Status Prepare() {
    HYPER_RETURN_IF_ERROR(ApplyOverrides());
    HYPER_ASSIGN_OR_RETURN(ranks_,
                           RankTable::Create(model_, communicator_->size(), ranks_per_replica_));
    if (!launch_.data) {
      return InvalidArgument("there is no data: the bundle was compiled without a 'data' block");
    }
    HYPER_RETURN_IF_ERROR(LoadState());
    if (!options_.eval_only) HYPER_RETURN_IF_ERROR(PrepareTraining());
    HYPER_RETURN_IF_ERROR(PrepareEvaluation());
    if (options_.write_files && !options_.dry_run && IsRoot()) {
      HYPER_RETURN_IF_ERROR(options_.fs->MakeDirs(launch_.run.dir));
      const std::string path =
          JoinPath(launch_.run.dir, options_.eval_only ? "eval.jsonl" : "metrics.jsonl");
      HYPER_ASSIGN_OR_RETURN(metrics_, MetricsWriter::Create(options_.fs, path, start_.step));
    }
    return Status::Ok();
  }

  Status ApplyOverrides() {
    std::optional<strategy::OptimizerConfig> compiled;
    if (launch_.train) compiled = launch_.train->optimizer;
    HYPER_RETURN_IF_ERROR(launch_.ApplyOverrides(options_.overrides));
    if (!launch_.train || !compiled) return Status::Ok();
    // The rate is a runtime scalar; the other values are constants of the update kernels.
    strategy::OptimizerConfig wanted = launch_.train->optimizer;
    wanted.lr = compiled->lr;
    if (wanted != *compiled) {
      return Unimplemented(
          "of train.optimizer this version sets only lr at launch: momentum, betas, eps and "
          "weight_decay are built into the bundle's update kernels; change them in the strategy "
          "and compile again");
    }
    return Status::Ok();
  }

  Status LoadState() {
    start_ = {model_, 0, 0, launch_.train ? launch_.train->seed : 0};
    if (options_.checkpoint.empty()) return Status::Ok();
    HYPER_ASSIGN_OR_RETURN(const LoadedCheckpoint loaded,
                           LoadCheckpoint(options_.fs, options_.checkpoint));
    HYPER_RETURN_IF_ERROR(RestoreCheckpoint(loaded, executor_));
    for (const std::string& note : loaded.notes) notes_.push_back(note + "; using an older one");
    if (launch_.train && loaded.info.seed != launch_.train->seed) {
      notes_.push_back(
          fmt::format("train.seed is {}, the checkpoint was trained with {}: the "
                      "order of samples changes",
                      launch_.train->seed, loaded.info.seed));
    }
    start_.step = loaded.info.step;
    start_.position = loaded.info.position;
    return Status::Ok();
  }

  Status PrepareTraining() {
    if (!launch_.train) {
      return FailedPrecondition(
          "the bundle was compiled without a 'train' block; it can only "
          "evaluate");
    }
    const std::optional<int64_t> steps = options_.steps ? options_.steps : launch_.run.steps;
    if (!steps) return InvalidArgument("how many steps? Give --steps or set run.steps");
    if (*steps < start_.step) {
      return InvalidArgument(
          fmt::format("the checkpoint is at step {}, the run ends at {}; ask "
                      "for more steps",
                      start_.step, *steps));
    }
    end_step_ = *steps;
    const program::Program& program = executor_->program();
    TrainerOptions trainer_options;
    trainer_options.train = *launch_.train;
    HYPER_ASSIGN_OR_RETURN(
        trainer_options.micro_batches,
        MicroBatchesPerReplica(*launch_.train, program.micro_batch(), ranks_->replicas()));
    trainer_options.total_steps = end_step_;
    trainer_options.overlap = options_.overlap.value_or(!program.reduce_at_end());
    trainer_options.fault = options_.fault;
    micro_batches_ = trainer_options.micro_batches;
    HYPER_ASSIGN_OR_RETURN(trainer_,
                           Trainer::Create(executor_, communicator_, *ranks_, trainer_options));
    trainer_->set_step(start_.step);
    HYPER_ASSIGN_OR_RETURN(train_data_, MakeDataset(strategy::TrainSource(*launch_.data), 0));
    LoaderOptions loader;
    loader.micro_batch = program.micro_batch();
    loader.micro_batches = micro_batches_;
    loader.replicas = ranks_->replicas();
    loader.replica = ranks_->place(communicator_->rank()).replica;
    loader.position = start_.position;
    loader.seed = launch_.train->seed;
    loader.shuffle = launch_.data->shuffle;
    loader.prefetch = launch_.data->prefetch;
    loader.count_inputs = trainer_->count_inputs();
    loader_ = BatchLoader::Create(train_data_, loader);
    return Status::Ok();
  }

  Status PrepareEvaluation() {
    const std::optional<strategy::DataSource> source = strategy::EvalSource(*launch_.data);
    if (!source) {
      if (options_.eval_only || launch_.run.eval_every > 0) {
        return InvalidArgument(fmt::format("{} needs held-out data: set data.eval",
                                           options_.eval_only ? "--eval" : "run.eval_every"));
      }
      return Status::Ok();
    }
    HYPER_ASSIGN_OR_RETURN(evaluator_, Evaluator::Create(executor_, communicator_, *ranks_));
    HYPER_ASSIGN_OR_RETURN(eval_data_, MakeDataset(*source, 1));
    return Status::Ok();
  }

  // Made-up data of training and evaluation differ by the seed.
  Result<std::shared_ptr<const Dataset>> MakeDataset(const strategy::DataSource& source,
                                                     int64_t seed_offset) const {
    const program::Program& program = executor_->program();
    HYPER_ASSIGN_OR_RETURN(std::vector<InputSpec> inputs, InputsOf(program));
    const int64_t seed = (launch_.train ? launch_.train->seed : 0) * 2 + seed_offset;
    HYPER_ASSIGN_OR_RETURN(
        std::unique_ptr<Dataset> dataset,
        Dataset::Create(source, std::move(inputs), LabelRangesOf(program), seed));
    return std::shared_ptr<const Dataset>(std::move(dataset));
  }

  Status Announce() {
    StartInfo info;
    info.model = model_;
    info.training = !options_.eval_only;
    info.rank = communicator_->rank();
    info.replicas = ranks_->replicas();
    info.threads = executor_->team().size();
    info.micro_batch = executor_->program().micro_batch();
    info.micro_batches = micro_batches_;
    info.log_every = launch_.run.log_every;
    info.first_step = start_.step;
    info.steps = end_step_;
    info.train_samples = train_data_ != nullptr ? train_data_->samples() : 0;
    info.eval_samples = eval_data_ != nullptr ? eval_data_->samples() : 0;
    info.arena_bytes = executor_->arena_bytes() + executor_->scratch_bytes();
    for (const program::Slot& slot : executor_->program().slots()) {
      const int64_t elements = TypeOf(slot.place()).elements();
      if (slot.storage() == program::PARAMETER) {
        ++info.trained_tensors;
        info.trained_parameters += elements;
      } else if (slot.storage() == program::FROZEN) {
        ++info.frozen_tensors;
        info.frozen_parameters += elements;
      }
    }
    HYPER_ASSIGN_OR_RETURN(info.hosts, communicator_->AllGather(HostName()));
    HYPER_ASSIGN_OR_RETURN(const std::vector<std::string> threads,
                           communicator_->AllGather(fmt::format("{}", info.threads)));
    for (const std::string& text : threads) {
      int count = 0;
      std::from_chars(text.data(), text.data() + text.size(), count);
      info.threads_per_rank.push_back(count);
    }
    options_.reporter->OnStart(info);
    for (const std::string& note : notes_) options_.reporter->OnNote(note);
    return Status::Ok();
  }

  Status Train() {
    const int64_t traced = std::min(start_.step + kTracedStep, end_step_);
    result_.losses.reserve(static_cast<size_t>(end_step_ - start_.step));
    StepReport report;
    while (trainer_->step() < end_step_) {
      const bool trace = !options_.trace.empty() && trainer_->step() + 1 == traced;
      std::vector<TracedRun> runs;
      if (trace) trainer_->TraceRuns(&runs);
      HYPER_RETURN_IF_ERROR(trainer_->Step(loader_.get(), pending_, &report));
      if (trace) {
        trainer_->TraceRuns(nullptr);
        Keep(WriteTrace(runs));
      }
      result_.losses.push_back(report.loss);
      if (metrics_ != nullptr) Keep(metrics_->Write(report));
      options_.reporter->OnStep(report);
      const strategy::RunConfig& run = launch_.run;
      if (evaluator_ != nullptr && run.eval_every > 0 && report.step % run.eval_every == 0) {
        HYPER_RETURN_IF_ERROR(Evaluate());
      }
      if (run.checkpoint_every > 0 && report.step % run.checkpoint_every == 0) {
        HYPER_RETURN_IF_ERROR(Save());
      }
    }
    result_.overlap = MeasureOverlap(trainer_->reduces(), trainer_->trace().backward_end_ns);
    if (last_saved_step_ != trainer_->step()) HYPER_RETURN_IF_ERROR(Save());
    return AgreeOn(communicator_, pending_);
  }

  // What fails on this rank alone is told to the others when all meet the next time.
  void Keep(const Status& status) {
    if (pending_.ok()) pending_ = status;
  }

  Status WriteTrace(const std::vector<TracedRun>& runs) {
    const std::string path =
        communicator_->size() == 1
            ? options_.trace
            : fmt::format("{}.rank-{:04}", options_.trace, communicator_->rank());
    return WriteFileAtomic(options_.fs, path,
                           FormatTrace(executor_->program(), communicator_->rank(),
                                       trainer_->trace(), runs, trainer_->reduces()));
  }

  Status Evaluate() {
    HYPER_ASSIGN_OR_RETURN(EvalReport report, evaluator_->Run(*eval_data_));
    report.step = steps_done();
    last_eval_step_ = report.step;
    result_.eval = report;
    if (metrics_ != nullptr) Keep(metrics_->Write(report));
    options_.reporter->OnEval(report);
    return Status::Ok();
  }

  // Rank 0 writes; all ranks learn whether it could.
  Status Save() {
    if (!options_.write_files) return Status::Ok();
    last_saved_step_ = trainer_->step();
    if (IsRoot()) Keep(Guard([&] { return SaveOnRoot(); }));
    HYPER_RETURN_IF_ERROR(AgreeOn(communicator_, pending_));
    if (IsRoot()) options_.reporter->OnCheckpoint(last_saved_step_, result_.checkpoint);
    return Status::Ok();
  }

  Status SaveOnRoot() {
    const std::string folder = launch_.run.checkpoint_dir.empty()
                                   ? JoinPath(launch_.run.dir, "checkpoints")
                                   : launch_.run.checkpoint_dir;
    CheckpointInfo info = start_;
    info.step = trainer_->step();
    info.position = start_.position + (info.step - start_.step) * trainer_->global_batch();
    HYPER_ASSIGN_OR_RETURN(result_.checkpoint,
                           SaveCheckpoint(options_.fs, folder, info, *executor_));
    // Only what this run wrote is removed: the folder may hold states of other runs.
    written_.push_back(result_.checkpoint);
    while (static_cast<int64_t>(written_.size()) > launch_.run.checkpoint_keep) {
      HYPER_RETURN_IF_ERROR(options_.fs->RemoveAll(written_.front()));
      written_.erase(written_.begin());
    }
    return Status::Ok();
  }

  Executor* executor_;
  const std::string model_;
  const int ranks_per_replica_;
  strategy::LaunchConfig launch_;
  const JobOptions& options_;
  Communicator* communicator_;
  std::optional<RankTable> ranks_;
  CheckpointInfo start_;
  int64_t end_step_ = 0;
  int64_t micro_batches_ = 1;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Evaluator> evaluator_;
  std::shared_ptr<const Dataset> train_data_;
  std::shared_ptr<const Dataset> eval_data_;
  std::unique_ptr<BatchLoader> loader_;
  std::unique_ptr<MetricsWriter> metrics_;
  Status pending_;  // of this rank alone so far
  std::vector<std::string> notes_;
  std::vector<std::string> written_;
  int64_t last_saved_step_ = -1;
  int64_t last_eval_step_ = -1;
  JobResult result_;
};

}  // namespace

Result<JobResult> RunJobOn(Executor* executor, const std::string& model_name, int ranks_per_replica,
                           strategy::LaunchConfig launch, const JobOptions& options) {
  Job job(executor, model_name, ranks_per_replica, std::move(launch), options);
  return job.Run();
}

}  // namespace hyper::runtime
