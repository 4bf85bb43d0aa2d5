#include "runtime/trainer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ir/graph.h"
#include "runtime/agree.h"
#include "runtime/not_finite.h"
#include "runtime/schedule.h"

namespace hyper::runtime {
namespace {

// Added to the norm before dividing, as PyTorch's clip_grad_norm_ does.
constexpr double kClipEpsilon = 1e-6;

// The last element of the reduced losses: failed ranks, plus this for each one asked to stop. Sums
// over any number of ranks below it are exact.
constexpr int64_t kStopUnit = int64_t{1} << 20;

}  // namespace

Trainer::Trainer(Executor* executor, Communicator* communicator, TrainerOptions options)
    : executor_(executor),
      communicator_(communicator),
      options_(std::move(options)),
      reducer_(communicator, executor->program().buckets_size()),
      reduce_order_(executor->program().buckets_size(), options_.overlap),
      ready_ns_(static_cast<size_t>(executor->program().buckets_size())),
      on_marker_([this](int bucket) { OnMarker(bucket); }) {}

Result<std::unique_ptr<Trainer>> Trainer::Create(Executor* executor, Communicator* communicator,
                                                 const RankTable& ranks, TrainerOptions options) {
  std::unique_ptr<Trainer> trainer(new Trainer(executor, communicator, std::move(options)));
  HYPER_RETURN_IF_ERROR(trainer->FindParts(ranks));
  return trainer;
}

Status Trainer::FindParts(const RankTable& ranks) {
  const program::Program& program = executor_->program();
  if (!program.training() || !executor_->Has(first_name_) || !executor_->Has(update_name_)) {
    return FailedPrecondition("the bundle was compiled without a 'train' block");
  }
  if (options_.micro_batches < 1) {
    return InvalidArgument(fmt::format("{} micro-batches per step", options_.micro_batches));
  }
  if (options_.micro_batches > 1 && !executor_->Has(next_name_)) {
    return FailedPrecondition("the bundle cannot accumulate gradients over micro-batches");
  }
  if (options_.train.clip_norm > 0 && !executor_->Has(norm_name_)) {
    return FailedPrecondition(
        "train.clip_norm is set but the bundle was compiled without it; compile with "
        "train.clip_norm in the strategy");
  }
  replicas_ = ranks.replicas();
  replica_ = ranks.place(communicator_->rank()).replica;
  input_slots_ = InputSlotsOf(program);
  lr_ = FindScalar(executor_, std::string(ir::kScalarLearningRate));
  HYPER_RETURN_IF_ERROR(FindOptimizerValues());
  step_scalar_ = FindScalar(executor_, std::string(ir::kScalarStep));
  clip_ = FindScalar(executor_, std::string(ir::kScalarClip));
  statistic_scale_ = FindScalar(executor_, std::string(ir::kScalarStatisticScale));
  rng_ = FindRng(executor_);
  if (options_.train.clip_norm > 0 && !clip_.exists()) {
    return FailedPrecondition("train.clip_norm is set but the bundle's update does not clip");
  }
  if (const program::SubProgram* norm = FindSubProgram(program, norm_name_)) {
    for (const program::Operand& result : norm->results()) norm_parts_.push_back(&result);
  }
  statistics_ = StatisticPieces(program);
  return FindTerms();
}

Status Trainer::FindOptimizerValues() {
  const strategy::OptimizerConfig& o = options_.train.optimizer;
  using Kind = strategy::OptimizerKind;
  std::vector<std::pair<std::string_view, double>> values;
  switch (o.kind) {
    case Kind::kSgd: break;
    case Kind::kMomentum:
    case Kind::kNesterov: values = {{ir::kScalarMomentum, o.momentum}}; break;
    case Kind::kAdam:
    case Kind::kAdamW:
      values = {
          {ir::kScalarBeta1, o.beta1}, {ir::kScalarBeta2, o.beta2}, {ir::kScalarEpsilon, o.eps}};
      break;
  }
  values.emplace_back(ir::kScalarWeightDecay, o.weight_decay * options_.fault.decay_factor);
  for (const auto& [name, value] : values) {
    const ScalarSlot slot = FindScalar(executor_, std::string(name));
    if (!slot.exists()) {
      return FailedPrecondition(
          fmt::format("the bundle's update has no scalar '{}', which train.optimizer of kind {} "
                      "needs; compile again with this version",
                      name, strategy::OptimizerKindName(o.kind)));
    }
    optimizer_values_.emplace_back(slot, value);
  }
  return Status::Ok();
}

Status Trainer::FindTerms() {
  const program::Program& program = executor_->program();
  for (const program::LossTerm& loss : program.losses()) {
    Term term;
    term.name = loss.name();
    term.weight = loss.weight();
    term.constant_count = loss.constant_count();
    term.counted = loss.counted();
    term.seed = FindScalar(executor_, std::string(ir::kScalarSeedPrefix) + loss.name());
    term.loss_first = FindResult(program, first_name_, "loss." + loss.name());
    term.loss_next = FindResult(program, next_name_, "loss." + loss.name());
    if (term.loss_first == nullptr || (options_.micro_batches > 1 && term.loss_next == nullptr)) {
      return DataLoss(fmt::format("the program has no result 'loss.{}'", loss.name()));
    }
    if (term.counted) {
      term.count = FindResult(program, count_name_, "count." + loss.name());
      if (term.count == nullptr) {
        return DataLoss(fmt::format("the program has no result 'count.{}'", loss.name()));
      }
      const auto slot = std::find_if(input_slots_.begin(), input_slots_.end(),
                                     [&](const auto* s) { return s->name() == loss.labels(); });
      if (slot == input_slots_.end()) {
        return DataLoss(fmt::format("loss '{}' counts labels of '{}', which is no input",
                                    loss.name(), loss.labels()));
      }
      const int index = static_cast<int>(slot - input_slots_.begin());
      if (std::find(count_inputs_.begin(), count_inputs_.end(), index) == count_inputs_.end()) {
        count_inputs_.push_back(index);
      }
    }
    terms_.push_back(term);
  }
  if (terms_.empty()) return FailedPrecondition("the bundle has no loss");
  counts_.resize(terms_.size());
  losses_.resize(terms_.size() + 1);
  return Status::Ok();
}

int64_t Trainer::global_batch() const {
  return executor_->program().micro_batch() * options_.micro_batches * replicas_;
}

Status Trainer::Step(BatchLoader* loader, const Status& local, StepReport* report) {
  const Status status = RunStep(loader, local, report);
  if (status.ok()) return status;
  return status.WithContext(fmt::format("step {}", step_ + 1));
}

// A rank whose own part fails still enters every collective, so that no other waits for it; the
// losses carry the news.
Status Trainer::RunStep(BatchLoader* loader, Status local, StepReport* report) {
  trace_.begin_ns = SteadyNanoseconds();
  whole_ = false;
  reduce_order_.BeginStep();
  std::fill(counts_.begin(), counts_.end(), 0);
  std::fill(losses_.begin(), losses_.end(), 0.0);
  if (local.ok()) local = Count(loader);
  HYPER_RETURN_IF_ERROR(ReduceCountsAndSeed());
  if (local.ok()) local = RunMicroBatches(loader);
  HYPER_RETURN_IF_ERROR(ReduceGradients());
  if (local.ok()) local = WeighStatistics();
  HYPER_RETURN_IF_ERROR(ReduceStatistics());
  bool any_failed = false;
  HYPER_RETURN_IF_ERROR(ReduceLosses(!local.ok(), &any_failed, &report->loss));
  if (any_failed) {
    const Status agreed = AgreeOn(communicator_, local);
    whole_ = !IsCommunicationError(agreed.code());
    return agreed;
  }
  if (!std::isfinite(report->loss)) return NotFinite("the loss", report->loss);
  HYPER_RETURN_IF_ERROR(NormAndClip(report));

  const int64_t step = step_ + 1;
  report->step = step;
  report->lr = options_.train.optimizer.lr *
               ScheduleFactor(options_.train.schedule, step_, options_.total_steps);
  lr_.Set(report->lr);
  for (auto& [slot, value] : optimizer_values_) slot.Set(value);
  step_scalar_.Set(std::span<const int64_t>(&step, 1));
  HYPER_RETURN_IF_ERROR(RunSubprogram(update_name_, no_marker_));
  step_ = step;
  whole_ = true;
  trace_.end_ns = SteadyNanoseconds();
  const double seconds = static_cast<double>(trace_.end_ns - trace_.begin_ns) * 1e-9;
  report->step_ms = seconds * 1e3;
  report->samples_per_s = static_cast<double>(global_batch()) / std::max(seconds, 1e-9);
  return Status::Ok();
}

Status Trainer::RunSubprogram(const std::string& name, const std::function<void(int)>& on_marker) {
  if (traced_runs_ == nullptr) return executor_->Run(name, on_marker);
  TracedRun run{name, {}};
  executor_->SetTimeSink(&run.times);
  const Status status = executor_->Run(name, on_marker);
  executor_->SetTimeSink(nullptr);
  traced_runs_->push_back(std::move(run));
  return status;
}

Status Trainer::Count(BatchLoader* loader) {
  HYPER_ASSIGN_OR_RETURN(const auto labels, loader->BeginStep());
  if (count_inputs_.empty()) return Status::Ok();
  size_t next = 0;
  for (int64_t i = 0; i < options_.micro_batches; ++i) {
    for (const int input : count_inputs_) {
      executor_->WriteOperand(input_slots_[static_cast<size_t>(input)]->place(), labels[next++]);
    }
    HYPER_RETURN_IF_ERROR(RunSubprogram(count_name_, no_marker_));
    for (size_t t = 0; t < terms_.size(); ++t) {
      if (terms_[t].counted) counts_[t] += ReadScalarInt(*executor_, *terms_[t].count);
    }
  }
  return Status::Ok();
}

Status Trainer::ReduceCountsAndSeed() {
  if (!count_inputs_.empty()) {
    HYPER_RETURN_IF_ERROR(communicator_->AllReduceSum(
        counts_.data(), static_cast<int64_t>(counts_.size()), ir::DType::kI64));
  }
  for (size_t t = 0; t < terms_.size(); ++t) {
    Term& term = terms_[t];
    if (!term.counted) counts_[t] = term.constant_count * options_.micro_batches * replicas_;
    // Nothing counts: zero gradients.
    const double seed = counts_[t] == 0 ? 0 : term.weight / static_cast<double>(counts_[t]);
    term.seed.Set(seed * options_.fault.gradient_factor);
  }
  return Status::Ok();
}

Status Trainer::RunMicroBatches(BatchLoader* loader) {
  for (int64_t i = 0; i < options_.micro_batches; ++i) {
    HYPER_ASSIGN_OR_RETURN(const auto batch, loader->NextMicroBatch());
    for (size_t input = 0; input < input_slots_.size(); ++input) {
      executor_->WriteOperand(input_slots_[input]->place(), batch[input]);
    }
    const int64_t key[3] = {options_.train.seed + options_.fault.mask_seed_offset, step_ + 1,
                            replica_ * options_.micro_batches + i};
    rng_.Set(key);
    const bool last = i + 1 == options_.micro_batches;
    if (last) trace_.backward_begin_ns = SteadyNanoseconds();
    HYPER_RETURN_IF_ERROR(
        RunSubprogram(i == 0 ? first_name_ : next_name_, last ? on_marker_ : no_marker_));
    if (last) trace_.backward_end_ns = SteadyNanoseconds();
    for (size_t t = 0; t < terms_.size(); ++t) {
      losses_[t] += ReadScalar(*executor_, i == 0 ? *terms_[t].loss_first : *terms_[t].loss_next);
    }
  }
  if (reduce_order_.markers() == reduce_order_.buckets()) return Status::Ok();
  return Internal(fmt::format("{} of {} gradient buckets became ready", reduce_order_.markers(),
                              reduce_order_.buckets()));
}

void Trainer::OnMarker(int bucket) {
  ready_ns_[static_cast<size_t>(bucket)] = SteadyNanoseconds();
  reduce_order_.OnMarker(bucket, [this](int started) { StartReduce(started); });
}

void Trainer::StartReduce(int bucket) {
  if (bucket == options_.fault.skipped_bucket) return;
  const ReducePiece piece = BucketPiece(executor_->program(), bucket);
  reducer_.Start(bucket, executor_->arena() + piece.begin, piece.elements, piece.dtype,
                 ready_ns_[static_cast<size_t>(bucket)]);
}

Status Trainer::ReduceGradients() {
  reduce_order_.OnBackwardEnd([this](int started) { StartReduce(started); });
  const Status status = reducer_.Wait();
  trace_.reduced_ns = SteadyNanoseconds();
  return status;
}

Status Trainer::WeighStatistics() {
  if (statistics_.empty()) return Status::Ok();
  // Over the whole step; after this replica's last micro-batch.
  const int64_t scale[2] = {options_.micro_batches * replicas_,
                            (replicas_ - 1 - replica_) * options_.micro_batches};
  statistic_scale_.Set(scale);
  if (executor_->Has(weight_name_)) return RunSubprogram(weight_name_, no_marker_);
  if (replicas_ == 1) return Status::Ok();
  return DataLoss("the program has statistics but no subprogram 'stat_weight'");
}

Status Trainer::ReduceStatistics() {
  for (const ReducePiece& piece : statistics_) {
    HYPER_RETURN_IF_ERROR(
        communicator_->AllReduceSum(executor_->arena() + piece.begin, piece.elements, piece.dtype));
  }
  return Status::Ok();
}

Status Trainer::ReduceLosses(bool failed, bool* any_failed, double* loss) {
  const bool stop = options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed);
  losses_.back() = static_cast<double>((failed ? 1 : 0) + (stop ? kStopUnit : 0));
  HYPER_RETURN_IF_ERROR(communicator_->AllReduceSum(
      losses_.data(), static_cast<int64_t>(losses_.size()), ir::DType::kF64));
  const int64_t news = std::llround(losses_.back());
  *any_failed = news % kStopUnit != 0;
  stop_agreed_ = news >= kStopUnit;
  *loss = 0;
  for (size_t t = 0; t < terms_.size(); ++t) {
    if (counts_[t] > 0) *loss += terms_[t].weight * losses_[t] / static_cast<double>(counts_[t]);
  }
  return Status::Ok();
}

// The same on all ranks. Only here, when the run ends, are tensors searched.
Status Trainer::NotFinite(std::string_view what, double value) {
  HYPER_ASSIGN_OR_RETURN(const std::string tensor, FirstNotFinite(*executor_, communicator_));
  whole_ = true;
  const char* advice =
      tensor.starts_with("input")
          ? "Data must be finite"
          : "A lower train.optimizer.lr, a warm-up or train.clip_norm may help; check "
            "the data for values that are not finite";
  return InvalidArgument(fmt::format("{} is {}{}{}; the step changed no parameter. {}", what,
                                     NumberText(value), tensor.empty() ? "" : "; ", tensor,
                                     advice));
}

// Gradients are reduced and equal on all ranks, so the norm is too.
Status Trainer::NormAndClip(StepReport* report) {
  report->grad_norm.reset();
  report->clip_coef = 1;
  if (executor_->Has(norm_name_)) {
    HYPER_RETURN_IF_ERROR(RunSubprogram(norm_name_, no_marker_));
    double sum = 0;
    for (const program::Operand* part : norm_parts_) sum += ReadScalar(*executor_, *part);
    const double norm = std::sqrt(sum);
    if (!std::isfinite(norm)) return NotFinite("the gradient norm", norm);
    report->grad_norm = norm;
    if (options_.train.clip_norm > 0) {
      report->clip_coef = std::min(1.0, options_.train.clip_norm / (norm + kClipEpsilon));
    }
  }
  clip_.Set(report->clip_coef);
  return Status::Ok();
}

}  // namespace hyper::runtime
