#include "runtime/evaluator.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "runtime/agree.h"
#include "runtime/async_reducer.h"

namespace hyper::runtime {
namespace {

const std::string kEval = "eval";
const std::string kCount = "count";

int64_t LabelAt(const std::vector<std::byte>& buffer, ir::DType dtype, int64_t index) {
  if (dtype == ir::DType::kI32) {
    int32_t label = 0;
    std::memcpy(&label, buffer.data() + index * 4, sizeof(label));
    return label;
  }
  int64_t label = 0;
  std::memcpy(&label, buffer.data() + index * 8, sizeof(label));
  return label;
}

// Index of the largest of `classes` values that lie `stride` apart; the first of equal ones.
template <typename T>
int64_t ArgMax(const T* values, int64_t classes, int64_t stride) {
  int64_t best = 0;
  for (int64_t c = 1; c < classes; ++c) {
    if (values[c * stride] > values[best * stride]) best = c;
  }
  return best;
}

}  // namespace

Result<std::unique_ptr<Evaluator>> Evaluator::Create(Executor* executor, Communicator* communicator,
                                                     const RankTable& ranks) {
  std::unique_ptr<Evaluator> evaluator(new Evaluator(executor, communicator));
  HYPER_RETURN_IF_ERROR(evaluator->FindParts(ranks));
  return evaluator;
}

Status Evaluator::FindParts(const RankTable& ranks) {
  const program::Program& program = executor_->program();
  if (!executor_->Has(kEval) || program.losses_size() == 0) {
    return FailedPrecondition(
        "the bundle has no loss to evaluate: it was compiled without a 'train' block and runs "
        "forward only, with --outputs DIR");
  }
  replicas_ = ranks.replicas();
  replica_ = ranks.place(communicator_->rank()).replica;
  micro_batch_ = program.micro_batch();
  HYPER_ASSIGN_OR_RETURN(inputs_, InputsOf(program));
  input_slots_ = InputSlotsOf(program);
  for (const InputSpec& input : inputs_) {
    buffers_.emplace_back(static_cast<size_t>(input.SampleBytes() * micro_batch_));
  }
  for (const program::LossTerm& loss : program.losses()) {
    Term term;
    term.weight = loss.weight();
    term.constant_count = loss.constant_count();
    term.loss = FindResult(program, kEval, "loss." + loss.name());
    if (term.loss == nullptr) {
      return DataLoss(fmt::format("@eval has no result 'loss.{}'", loss.name()));
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].name == loss.labels()) term.labels_input = static_cast<int>(i);
    }
    if (loss.counted()) {
      term.count = FindResult(program, kCount, "count." + loss.name());
      if (term.count == nullptr) {
        return DataLoss(fmt::format("the program has no result 'count.{}'", loss.name()));
      }
      count_labels_ = true;
    }
    if (loss.has_ignore()) term.ignore_index = loss.ignore_index();
    // Constant counts do not see ignored labels.
    if (!loss.has_ignore() || !loss.counted() || term.labels_input < 0) mask_by_ignore_ = false;
    // Two terms that ignore different values of the same labels cannot share a mask.
    for (const Term& other : terms_) {
      if (other.labels_input == term.labels_input && other.ignore_index != term.ignore_index) {
        mask_by_ignore_ = false;
      }
    }
    if (IsModelOutput(loss)) whole_micro_batches_ = true;
    terms_.push_back(term);
  }
  FindAccuracy();
  return Status::Ok();
}

void Evaluator::FindAccuracy() {
  const program::Program& program = executor_->program();
  for (size_t t = 0; t < terms_.size(); ++t) {
    const program::LossTerm& loss = program.losses(static_cast<int>(t));
    if (!IsCrossEntropy(loss) || loss.prediction().empty()) continue;
    const program::Operand* logits = FindResult(program, kEval, loss.prediction());
    if (logits == nullptr || terms_[t].labels_input < 0) continue;
    const ir::TensorType type = TypeOf(*logits);
    const ir::TensorType& labels = inputs_[static_cast<size_t>(terms_[t].labels_input)].type;
    const bool floats = type.dtype == ir::DType::kF32 || type.dtype == ir::DType::kF64;
    if (!floats || loss.class_axis() >= type.rank() ||
        type.elements() != labels.elements() * loss.classes()) {
      continue;
    }
    logits_ = logits;
    accuracy_term_ = t;
    class_axis_ = loss.class_axis();
    logits_buffer_.resize(static_cast<size_t>(type.bytes()));
    return;
  }
}

Result<EvalReport> Evaluator::Run(const Dataset& dataset) {
  const int64_t begin = SteadyNanoseconds();
  Totals totals(terms_.size() * 2 + 3, 0.0);
  double failed = 0;
  Status local;
  const int64_t samples = dataset.samples();
  const int64_t usable = whole_micro_batches_ ? samples / micro_batch_ * micro_batch_ : samples;
  if (usable == 0) {
    return InvalidArgument(fmt::format("the evaluation data has {} samples, a micro-batch has {}",
                                       samples, micro_batch_));
  }
  const int64_t micro_batches = (usable + micro_batch_ - 1) / micro_batch_;
  for (int64_t j = replica_; j < micro_batches && local.ok(); j += replicas_) {
    const int64_t first = j * micro_batch_;
    local = RunMicroBatch(dataset, first, std::min(micro_batch_, usable - first), &totals);
  }
  failed = local.ok() ? 0 : 1;
  HYPER_RETURN_IF_ERROR(communicator_->AllReduceSum(&failed, 1, ir::DType::kF64));
  if (failed != 0) return AgreeOn(communicator_, local);
  HYPER_RETURN_IF_ERROR(communicator_->AllReduceSum(
      totals.data(), static_cast<int64_t>(totals.size()), ir::DType::kF64));
  EvalReport report;
  for (size_t t = 0; t < terms_.size(); ++t) {
    if (totals[2 * t + 1] > 0) {
      report.loss += terms_[t].weight * totals[2 * t] / totals[2 * t + 1];
    }
  }
  const size_t judged = totals.size() - 2;
  if (logits_ != nullptr && totals[judged] > 0) {
    report.accuracy = totals[judged - 1] / totals[judged];
  }
  report.samples = static_cast<int64_t>(totals.back());
  report.seconds = static_cast<double>(SteadyNanoseconds() - begin) * 1e-9;
  return report;
}

Status Evaluator::RunMicroBatch(const Dataset& dataset, int64_t first, int64_t real,
                                Totals* totals) {
  for (size_t input = 0; input < inputs_.size(); ++input) {
    const int64_t bytes = inputs_[input].SampleBytes();
    for (int64_t row = 0; row < real; ++row) {
      HYPER_RETURN_IF_ERROR(
          dataset.Read(static_cast<int>(input), first + row, buffers_[input].data() + row * bytes));
    }
    FillRows(input, real);
  }
  const int64_t padded = micro_batch_ - real;
  if (padded > 0 && mask_by_ignore_) {
    for (const Term& term : terms_) IgnoreRows(term.labels_input, real, *term.ignore_index);
  }
  WriteInputs();
  HYPER_RETURN_IF_ERROR(RunAndAdd(1, totals));
  AddAccuracy(real, totals);
  totals->back() += static_cast<double>(real);
  if (padded > 0 && !mask_by_ignore_) {
    for (size_t input = 0; input < inputs_.size(); ++input) FillRows(input, 1);
    WriteInputs();
    HYPER_RETURN_IF_ERROR(
        RunAndAdd(-static_cast<double>(padded) / static_cast<double>(micro_batch_), totals));
  }
  return Status::Ok();
}

// Rows from `from_row` on become copies of row 0.
void Evaluator::FillRows(size_t input, int64_t from_row) {
  const size_t bytes = static_cast<size_t>(inputs_[input].SampleBytes());
  std::byte* data = buffers_[input].data();
  for (int64_t row = from_row; row < micro_batch_ && bytes > 0; ++row) {
    std::memcpy(data + static_cast<size_t>(row) * bytes, data, bytes);
  }
}

void Evaluator::IgnoreRows(int input, int64_t from_row, int64_t label) {
  const InputSpec& spec = inputs_[static_cast<size_t>(input)];
  std::byte* data = buffers_[static_cast<size_t>(input)].data();
  const int64_t end = micro_batch_ * spec.SampleElements();
  for (int64_t i = from_row * spec.SampleElements(); i < end; ++i) {
    if (spec.type.dtype == ir::DType::kI32) {
      const int32_t narrow = static_cast<int32_t>(label);
      std::memcpy(data + i * 4, &narrow, sizeof(narrow));
    } else {
      std::memcpy(data + i * 8, &label, sizeof(label));
    }
  }
}

void Evaluator::WriteInputs() {
  for (size_t i = 0; i < input_slots_.size(); ++i) {
    executor_->WriteOperand(input_slots_[i]->place(), buffers_[i]);
  }
}

Status Evaluator::RunAndAdd(double factor, Totals* totals) {
  if (count_labels_) HYPER_RETURN_IF_ERROR(executor_->Run(kCount, {}));
  for (size_t t = 0; t < terms_.size(); ++t) {
    const Term& term = terms_[t];
    const int64_t count =
        term.count != nullptr ? ReadScalarInt(*executor_, *term.count) : term.constant_count;
    (*totals)[2 * t + 1] += factor * static_cast<double>(count);
  }
  HYPER_RETURN_IF_ERROR(executor_->Run(kEval, {}));
  for (size_t t = 0; t < terms_.size(); ++t) {
    (*totals)[2 * t] += factor * ReadScalar(*executor_, *terms_[t].loss);
  }
  return Status::Ok();
}

void Evaluator::AddAccuracy(int64_t real, Totals* totals) {
  if (logits_ == nullptr) return;
  executor_->ReadOperand(*logits_, logits_buffer_);
  const ir::TensorType type = TypeOf(*logits_);
  const int64_t classes = type.dims[static_cast<size_t>(class_axis_)];
  int64_t inner = 1;
  for (int d = class_axis_ + 1; d < type.rank(); ++d) inner *= type.dims[static_cast<size_t>(d)];
  const Term& term = terms_[accuracy_term_];
  const size_t labels_input = static_cast<size_t>(term.labels_input);
  const InputSpec& spec = inputs_[labels_input];
  const int64_t judged = real * spec.SampleElements();
  for (int64_t i = 0; i < judged; ++i) {
    const int64_t label = LabelAt(buffers_[labels_input], spec.type.dtype, i);
    if (term.ignore_index && label == *term.ignore_index) continue;
    const int64_t at = i / inner * classes * inner + i % inner;
    const int64_t best =
        type.dtype == ir::DType::kF32
            ? ArgMax(reinterpret_cast<const float*>(logits_buffer_.data()) + at, classes, inner)
            : ArgMax(reinterpret_cast<const double*>(logits_buffer_.data()) + at, classes, inner);
    (*totals)[totals->size() - 3] += best == label ? 1 : 0;
    (*totals)[totals->size() - 2] += 1;
  }
}

}  // namespace hyper::runtime
