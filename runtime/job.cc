#include "runtime/job.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>
#include <unistd.h>

#include "base/strings.h"
#include "runtime/inference.h"
#include "runtime/kernels/library_blocks.h"
#include "runtime/metrics.h"
#include "runtime/rank_table.h"
#include "runtime/run_folder.h"
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
    if (!options_.dry_run) HYPER_RETURN_IF_ERROR(AgreeOn(communicator_, StartFiles()));
    HYPER_RETURN_IF_ERROR(Announce());
    if (options_.dry_run) return std::move(result_);
    if (Infers()) {
      HYPER_RETURN_IF_ERROR(AgreeOn(communicator_, Guard([&] { return Infer(); })));
    } else if (!options_.eval_only) {
      HYPER_RETURN_IF_ERROR(Train());
    }
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
  bool Infers() const { return !options_.outputs_dir.empty(); }
  int64_t steps_done() const { return trainer_ != nullptr ? trainer_->step() : start_.step; }

  Status Prepare() {
    HYPER_RETURN_IF_ERROR(launch_.ApplyOverrides(options_.overrides));
    HYPER_ASSIGN_OR_RETURN(ranks_,
                           RankTable::Create(model_, communicator_->size(), ranks_per_replica_));
    HYPER_RETURN_IF_ERROR(CheckReplicas());
    if (!launch_.data) {
      return InvalidArgument("there is no data: the bundle was compiled without a 'data' block");
    }
    HYPER_RETURN_IF_ERROR(LoadState());
    if (Infers()) {
      HYPER_RETURN_IF_ERROR(PrepareInference());
      return PrepareOutputs();
    }
    if (!options_.eval_only) HYPER_RETURN_IF_ERROR(PrepareTraining());
    HYPER_RETURN_IF_ERROR(PrepareEvaluation());
    return PrepareFiles();
  }

  // Memory is planned for so many replicas, and fewer would each need more.
  Status CheckReplicas() const {
    const int needed = std::max(1, static_cast<int>(executor_->program().min_replicas()));
    if (ranks_->replicas() >= needed) return Status::Ok();
    return InvalidArgument(fmt::format(
        "the launch has {} {} ({} ranks), the bundle was compiled for {} or more "
        "(data_parallel.min_replicas): start {} ranks or more, or compile with min_replicas {}",
        ranks_->replicas(), ranks_->replicas() == 1 ? "replica" : "replicas", ranks_->ranks(),
        needed, needed * ranks_per_replica_, ranks_->replicas()));
  }

  // Nothing that is there is changed yet.
  Status PrepareFiles() {
    if (!options_.trace.empty() && !options_.eval_only) {
      HYPER_RETURN_IF_ERROR(CheckOutputFile(options_.fs, TracePath()).WithContext("trace"));
    }
    if (!IsRoot()) return Status::Ok();
    HYPER_RETURN_IF_ERROR(CheckOutputs(options_.outputs));
    if (!options_.write_files) return Status::Ok();
    RunFolderOptions folder;
    folder.dir = launch_.run.dir;
    folder.checkpoint_dir = CheckpointDir();
    folder.training = !options_.eval_only;
    folder.overwrite = options_.overwrite;
    folder.dry_run = options_.dry_run;
    folder.start = start_path_;
    folder.start_step = start_.step;
    folder.damaged = damaged_;
    HYPER_ASSIGN_OR_RETURN(folder_, RunFolder::Open(options_.fs, folder));
    for (const std::string& note : folder_->notes()) notes_.push_back(note);
    return Status::Ok();
  }

  Status CheckOutputs(const std::vector<std::string>& paths) const {
    for (const std::string& path : paths) {
      HYPER_RETURN_IF_ERROR(CheckOutputFile(options_.fs, path));
    }
    return Status::Ok();
  }

  // As PrepareFiles, for an inference.
  Status PrepareOutputs() {
    HYPER_RETURN_IF_ERROR(CheckOutputs(options_.outputs));
    const std::string& dir = options_.outputs_dir;
    HYPER_RETURN_IF_ERROR(
        CheckOutputFolder(options_.fs, dir).WithContext(fmt::format("outputs '{}'", dir)));
    return options_.fs->Exists(dir) ? CheckOutputs(inference_->Paths(dir)) : Status::Ok();
  }

  // Behind all that refuses a launch: what an earlier job left goes now.
  Status StartFiles() {
    if (folder_ == nullptr) return Status::Ok();
    HYPER_RETURN_IF_ERROR(folder_->Clear());
    // Evaluations are a log of all that were made in the folder.
    const bool log = options_.eval_only;
    HYPER_ASSIGN_OR_RETURN(
        metrics_, MetricsWriter::Create(
                      options_.fs, JoinPath(launch_.run.dir, log ? "eval.jsonl" : "metrics.jsonl"),
                      log ? std::numeric_limits<int64_t>::max() : folder_->kept_steps()));
    return Status::Ok();
  }

  std::string CheckpointDir() const {
    return launch_.run.checkpoint_dir.empty() ? JoinPath(launch_.run.dir, "checkpoints")
                                              : launch_.run.checkpoint_dir;
  }
  std::string TracePath() const {
    if (communicator_->size() == 1) return options_.trace;
    return fmt::format("{}.rank-{:04}", options_.trace, communicator_->rank());
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
    start_path_ = loaded.path;
    damaged_ = loaded.damaged;
    start_.step = loaded.info.step;
    start_.position = loaded.info.position;
    return Status::Ok();
  }

  Status PrepareTraining() {
    if (!launch_.train) {
      return FailedPrecondition(
          "the bundle was compiled without a 'train' block: it runs forward only, with --outputs "
          "DIR");
    }
    const std::optional<int64_t> steps = options_.steps ? options_.steps : launch_.run.steps;
    if (!steps) return InvalidArgument("how many steps? Give --steps or set run.steps");
    if (start_.step > 0 && *steps <= start_.step) {
      return InvalidArgument(
          fmt::format("checkpoint '{}' is at step {}, the run ends at step {}: ask for a later one "
                      "with --steps, "
                      "which counts from the first step of the training",
                      start_path_, start_.step, *steps));
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
    trainer_options.stop = options_.stop;
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
    const int64_t step_samples = trainer_->global_batch();
    if (step_samples > train_data_->samples()) {
      notes_.push_back(fmt::format(
          "one step takes {} samples, the training data has {}: every step sees samples again",
          step_samples, train_data_->samples()));
    }
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

  // On data.eval, without it on the training data. Nothing of a run is written.
  Status PrepareInference() {
    if (communicator_->size() != 1) {
      return InvalidArgument(fmt::format("--outputs runs on one rank, the launch has {}: start one",
                                         communicator_->size()));
    }
    const std::optional<strategy::DataSource> eval = strategy::EvalSource(*launch_.data);
    HYPER_ASSIGN_OR_RETURN(inference_, Inference::Create(executor_));
    HYPER_ASSIGN_OR_RETURN(
        eval_data_, MakeDataset(eval ? *eval : strategy::TrainSource(*launch_.data), eval ? 1 : 0));
    return Status::Ok();
  }

  Status Infer() {
    HYPER_ASSIGN_OR_RETURN(const std::vector<WrittenOutput> written,
                           inference_->Run(*eval_data_, options_.fs, options_.outputs_dir));
    for (const WrittenOutput& output : written) {
      options_.reporter->OnNote(fmt::format("wrote {} {}", output.path, output.type.ToString()));
    }
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
    info.training = !options_.eval_only && !Infers();
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
    info.arena_bytes = executor_->arena_bytes();
    info.checkpoint = start_path_;
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
    if (executor_->staging_bytes() > 0) {
      options_.reporter->OnNote(fmt::format("reference kernels keep {} beside the planned memory",
                                            FormatBytes(executor_->staging_bytes())));
    }
    for (const std::string& note : notes_) options_.reporter->OnNote(note);
    return Status::Ok();
  }

  Status Train() {
    const Status status = TrainSteps();
    if (!status.ok()) return Rescue(status);
    result_.overlap = MeasureOverlap(trainer_->reduces(), trainer_->trace().backward_end_ns);
    if (const std::string note = LibraryHeapNote(); !note.empty()) options_.reporter->OnNote(note);
    if (tried_step_ != trainer_->step()) HYPER_RETURN_IF_ERROR(Save());
    return AgreeOn(communicator_, pending_);
  }

  Status TrainSteps() {
    const int64_t traced = std::min(start_.step + kTracedStep, end_step_);
    StepReport report;
    while (trainer_->step() < end_step_) {
      const bool trace = !options_.trace.empty() && trainer_->step() + 1 == traced;
      std::vector<TracedRun> runs;
      if (trace) trainer_->TraceRuns(&runs);
      HYPER_RETURN_IF_ERROR(trainer_->Step(loader_.get(), pending_, &report));
      if (trace) {
        trainer_->TraceRuns(nullptr);
        HYPER_RETURN_IF_ERROR(NoteOfTrace(WriteTrace(runs)));
      }
      if (metrics_ != nullptr) Keep(metrics_->Write(report));
      options_.reporter->OnStep(report);
      if (trainer_->stop_agreed() && trainer_->step() < end_step_) return Stop();
      const strategy::RunConfig& run = launch_.run;
      if (evaluator_ != nullptr && run.eval_every > 0 && report.step % run.eval_every == 0) {
        HYPER_RETURN_IF_ERROR(Evaluate());
      }
      if (run.checkpoint_every > 0 && report.step % run.checkpoint_every == 0) {
        HYPER_RETURN_IF_ERROR(Save());
      }
    }
    return Status::Ok();
  }

  // Asked to stop: every rank is here after the same step.
  Status Stop() {
    if (tried_step_ != trainer_->step()) HYPER_RETURN_IF_ERROR(SaveQuietly());
    if (metrics_ != nullptr) Keep(metrics_->Close());
    HYPER_RETURN_IF_ERROR(AgreeOn(communicator_, pending_));
    return {StatusCode::kCancelled,
            fmt::format("step {} of {} is done{}", trainer_->step(), end_step_,
                        options_.write_files ? " and saved" + HowToContinue() : "")};
  }

  std::string HowToContinue() const {
    return fmt::format("; continue with --checkpoint {}",
                       CheckpointPath(CheckpointDir(), trainer_->step()));
  }

  // A failure that all ranks returned has left a whole state behind: it is not lost.
  Status Rescue(const Status& failure) {
    const int64_t step = trainer_->step();
    if (!trainer_->whole() && options_.alone != nullptr) *options_.alone = true;
    if (failure.code() == StatusCode::kCancelled || IsCommunicationError(failure.code()) ||
        !trainer_->whole() || !options_.write_files || step == start_.step) {
      return failure;
    }
    if (tried_step_ != step) {
      pending_ = Status::Ok();  // it is part of the failure
      const Status saved = SaveQuietly();
      if (!saved.ok()) {
        return {failure.code(), fmt::format("{}; the state after step {} could not be saved: {}",
                                            failure.message(), step, saved.message())};
      }
    }
    if (saved_step_ != step) return failure;
    return {failure.code(), fmt::format("{}; the state after step {} is saved{}", failure.message(),
                                        step, HowToContinue())};
  }

  // What fails on this rank alone is told to the others when all meet the next time.
  void Keep(const Status& status) {
    if (pending_.ok()) pending_ = status;
  }

  Status WriteTrace(const std::vector<TracedRun>& runs) {
    return WriteFileAtomic(options_.fs, TracePath(),
                           FormatTrace(executor_->program(), communicator_->rank(),
                                       trainer_->trace(), runs, trainer_->reduces()));
  }

  // A trace is no reason to end a training. Collective, so that rank 0 tells of all.
  Status NoteOfTrace(const Status& status) {
    HYPER_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           communicator_->AllGather(status.ok() ? "" : status.message()));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].empty()) continue;
      options_.reporter->OnNote(fmt::format("rank {} wrote no trace: {}", rank, all[rank]));
    }
    return Status::Ok();
  }

  Status Evaluate() {
    HYPER_ASSIGN_OR_RETURN(EvalReport report, evaluator_->Run(*eval_data_));
    report.step = steps_done();
    last_eval_step_ = report.step;
    result_.eval = report;
    if (metrics_ != nullptr) {
      Keep(metrics_->Write(report, options_.eval_only ? start_path_ : std::string()));
    }
    options_.reporter->OnEval(report);
    return Status::Ok();
  }

  Status Save() {
    if (!options_.write_files) return Status::Ok();
    HYPER_RETURN_IF_ERROR(SaveQuietly());
    if (IsRoot()) options_.reporter->OnCheckpoint(saved_step_, result_.checkpoint);
    return Status::Ok();
  }

  // Rank 0 writes; all ranks learn whether it could.
  Status SaveQuietly() {
    if (!options_.write_files) return Status::Ok();
    tried_step_ = trainer_->step();
    if (IsRoot()) Keep(Guard([&] { return SaveOnRoot(); }));
    HYPER_RETURN_IF_ERROR(AgreeOn(communicator_, pending_));
    saved_step_ = tried_step_;
    return Status::Ok();
  }

  Status SaveOnRoot() {
    CheckpointInfo info = start_;
    info.step = trainer_->step();
    info.position = start_.position + (info.step - start_.step) * trainer_->global_batch();
    HYPER_ASSIGN_OR_RETURN(result_.checkpoint,
                           SaveCheckpoint(options_.fs, CheckpointDir(), info, *executor_));
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
  std::unique_ptr<Inference> inference_;
  std::shared_ptr<const Dataset> train_data_;
  std::shared_ptr<const Dataset> eval_data_;
  std::unique_ptr<BatchLoader> loader_;
  std::unique_ptr<MetricsWriter> metrics_;
  Status pending_;  // of this rank alone so far
  std::vector<std::string> notes_;
  std::vector<std::string> written_;
  std::unique_ptr<RunFolder> folder_;  // rank 0
  std::string start_path_;             // of the loaded checkpoint
  std::vector<int64_t> damaged_;       // steps of those passed over for it
  int64_t tried_step_ = -1;            // last step whose state was to be saved
  int64_t saved_step_ = -1;            // and was
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
