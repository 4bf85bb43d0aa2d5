#include "tests/runtime/fake_executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "runtime/data/random.h"
#include "runtime/program_io.h"

namespace hyper::runtime::testing {

FakeExecutor::FakeExecutor(const FakeOptions& options) : options_(options) {
  BuildProgram();
  arena_.assign(static_cast<size_t>(next_ / 8), 0.0);
  double* weight = Data(program::PARAMETER, "weight");
  for (int64_t i = 0; i < options_.features * options_.classes; ++i) {
    weight[i] = UniformFrom(HashCounter(1, static_cast<uint64_t>(i))) - 0.5;
  }
  double* shift = Data(program::FROZEN, "shift");
  for (int64_t i = 0; i < options_.features; ++i) shift[i] = 0.25 * static_cast<double>(i);
}

program::Operand FakeExecutor::Place(const std::string& name, program::DType dtype,
                                     std::vector<int64_t> dims) {
  program::Operand place;
  place.set_name(name);
  place.set_dtype(dtype);
  int64_t elements = 1;
  for (const int64_t extent : dims) {
    place.add_dims(extent);
    elements *= extent;
  }
  for (const int64_t stride : ir::RowMajorStrides(dims)) place.add_strides(stride);
  place.set_offset(next_);
  place.set_begin(next_);
  place.set_end(next_ + elements * 8);
  next_ += elements * 8;
  return place;
}

void FakeExecutor::AddSlot(program::Storage storage, const std::string& name, program::DType dtype,
                           std::vector<int64_t> dims, const std::string& slot) {
  program::Slot* added = program_.add_slots();
  added->set_storage(storage);
  added->set_name(name);
  added->set_slot(slot);
  *added->mutable_place() = Place(name, dtype, std::move(dims));
}

void FakeExecutor::BuildProgram() {
  const int64_t f = options_.features;
  const int64_t c = options_.classes;
  const int64_t b = options_.batch;
  using namespace program;
  AddSlot(PARAMETER, "bias", F64, {c});
  AddSlot(PARAMETER, "weight", F64, {f, c});
  AddSlot(GRADIENT, "bias", F64, {c});
  AddSlot(GRADIENT, "weight", F64, {f, c});
  AddSlot(OPTIMIZER, "weight", F64, {f, c}, "sum");
  AddSlot(FROZEN, "shift", F64, {f});
  AddSlot(STATE, "mean", F64, {f});
  AddSlot(STATISTIC, "mean", F64, {f});
  AddSlot(INPUT, "x", F64, {b, f});
  AddSlot(INPUT, "labels", I64, {b});
  AddSlot(SCALAR, "lr", F64, {});
  AddSlot(SCALAR, "step", I64, {});
  AddSlot(SCALAR, "weight_decay", F64, {});
  if (options_.clip) AddSlot(SCALAR, "clip_coef", F64, {});
  AddSlot(SCALAR, "seed.loss", F64, {});
  AddSlot(SCALAR, "stat_scale", I64, {2});
  AddSlot(SCALAR, "rng", I64, {3});
  const auto add = [&](const char* name) {
    program::SubProgram* sub = program_.add_subprograms();
    sub->set_name(name);
    return sub;
  };
  if (options_.counted) *add("count")->add_results() = Place("count.loss", I64, {});
  for (const char* name : {"step_first", "step_next"}) {
    program::SubProgram* sub = add(name);
    *sub->add_results() = Place("loss.loss", F64, {});
    for (int i = 0; i < 2; ++i) {
      program::Instruction* backward = sub->add_instructions();
      backward->mutable_reference()->set_op("backward");
      backward->set_role("weight_grad");
      program::Operand* gradient = backward->add_operands();
      *gradient = FindSlot(program::GRADIENT, i == 0 ? "bias" : "weight")->place();
      gradient->set_access(program::ACCUMULATE);
      sub->add_instructions()->mutable_marker()->set_bucket(i);
    }
  }
  add("stat_weight");
  if (options_.clip) {
    program::SubProgram* norm = add("grad_norm");
    *norm->add_results() = Place("bias", F64, {});
    *norm->add_results() = Place("weight", F64, {});
  }
  add("update");
  program::SubProgram* eval = add("eval");
  *eval->add_results() = Place("loss.loss", F64, {});
  *eval->add_results() = Place("logits", F64, {b, c});
  for (const char* name : {"bias", "weight"}) {
    const program::Slot* gradient = FindSlot(program::GRADIENT, name);
    program::Bucket* bucket = program_.add_buckets();
    bucket->set_begin(gradient->place().begin());
    bucket->set_end(gradient->place().end());
    bucket->set_dtype(F64);
    bucket->add_parameters(name);
  }
  program::LossTerm* term = program_.add_losses();
  term->set_name("loss");
  term->set_weight(options_.weight);
  term->set_kind(options_.output_loss ? "output" : "cross_entropy");
  term->set_labels(options_.output_loss ? "" : "labels");
  term->set_prediction("logits");
  term->set_classes(options_.output_loss ? 0 : c);
  term->set_class_axis(1);
  term->set_counted(options_.counted);
  term->set_has_ignore(options_.counted);
  term->set_ignore_index(options_.counted ? kIgnore : 0);
  term->set_constant_count(options_.counted ? 0 : options_.output_loss ? 1 : b);
  program_.set_micro_batch(b);
  program_.set_compute_dtype(F64);
  program_.set_training(true);
  program_.set_arena_bytes(next_);
}

bool FakeExecutor::Has(const std::string& subprogram) const {
  return FindSubProgram(program_, subprogram) != nullptr;
}

const program::Slot* FakeExecutor::FindSlot(program::Storage storage, const std::string& name,
                                            const std::string& slot) const {
  for (const program::Slot& candidate : program_.slots()) {
    if (candidate.storage() == storage && candidate.name() == name && candidate.slot() == slot) {
      return &candidate;
    }
  }
  return nullptr;
}

void FakeExecutor::ReadOperand(const program::Operand& place,
                               std::span<std::byte> row_major) const {
  HYPER_CHECK(static_cast<int64_t>(row_major.size()) == place.end() - place.begin(), place.name());
  std::memcpy(row_major.data(), reinterpret_cast<const char*>(arena_.data()) + place.begin(),
              row_major.size());
}

void FakeExecutor::WriteOperand(const program::Operand& place,
                                std::span<const std::byte> row_major) {
  HYPER_CHECK(static_cast<int64_t>(row_major.size()) == place.end() - place.begin(), place.name());
  std::memcpy(arena() + place.begin(), row_major.data(), row_major.size());
}

double* FakeExecutor::Data(program::Storage storage, const std::string& name,
                           const std::string& slot) {
  const program::Slot* found = FindSlot(storage, name, slot);
  return found == nullptr ? nullptr : arena_.data() + found->place().begin() / 8;
}

int64_t* FakeExecutor::Ints(program::Storage storage, const std::string& name) {
  return reinterpret_cast<int64_t*>(Data(storage, name));
}

double* FakeExecutor::ResultData(const std::string& subprogram, const std::string& name) {
  return arena_.data() + FindResult(program_, subprogram, name)->begin() / 8;
}

std::vector<double> FakeExecutor::Values(program::Storage storage, const std::string& name) const {
  const program::Slot* found = FindSlot(storage, name);
  const double* begin = arena_.data() + found->place().begin() / 8;
  return {begin, begin + (found->place().end() - found->place().begin()) / 8};
}

void FakeExecutor::SetValues(program::Storage storage, const std::string& name,
                             const std::vector<double>& values) {
  std::copy(values.begin(), values.end(), Data(storage, name));
}

void FakeExecutor::Count() {
  int64_t count = 0;
  for (int64_t i = 0; i < options_.batch; ++i) {
    count += Ints(program::INPUT, "labels")[i] != kIgnore;
  }
  std::memcpy(ResultData("count", "count.loss"), &count, sizeof(count));
}

// Loss sum and softmax of x * weight + bias; `inputs_` keeps the masked x.
void FakeExecutor::Forward(bool training, std::vector<double>* probabilities, double* loss) {
  const int64_t f = options_.features;
  const int64_t c = options_.classes;
  const double* x = Data(program::INPUT, "x");
  const int64_t* key = Ints(program::SCALAR, "rng");
  inputs_.assign(x, x + options_.batch * f);
  if (training && options_.masked) {
    const uint64_t stream =
        HashCounter(static_cast<uint64_t>(key[0]), static_cast<uint64_t>(key[1]));
    for (int64_t i = 0; i < options_.batch * f; ++i) {
      const int64_t position = key[2] * options_.batch * f + i;
      const double keep = UniformFrom(HashCounter(stream, static_cast<uint64_t>(position)));
      inputs_[static_cast<size_t>(i)] *= keep < 0.5 ? 0 : 2;
    }
  }
  probabilities->assign(static_cast<size_t>(options_.batch * c), 0);
  *loss = 0;
  double* logits = training ? nullptr : ResultData("eval", "logits");
  for (int64_t row = 0; row < options_.batch; ++row) {
    double* p = probabilities->data() + row * c;
    double total = 0;
    for (int64_t k = 0; k < c; ++k) {
      double z = Data(program::PARAMETER, "bias")[k];
      for (int64_t j = 0; j < f; ++j) {
        z += inputs_[static_cast<size_t>(row * f + j)] *
             Data(program::PARAMETER, "weight")[j * c + k];
      }
      if (logits != nullptr) logits[row * c + k] = z;
      p[k] = std::exp(z);
      total += p[k];
    }
    for (int64_t k = 0; k < c; ++k) p[k] /= total;
    const int64_t label = Ints(program::INPUT, "labels")[row];
    if (label != kIgnore || !options_.counted) *loss -= std::log(p[label]);
  }
  if (options_.output_loss) *loss /= static_cast<double>(options_.batch);
}

void FakeExecutor::Step(bool first, const std::function<void(int)>& on_marker) {
  const int64_t f = options_.features;
  const int64_t c = options_.classes;
  std::vector<double> p;
  double loss = 0;
  Forward(true, &p, &loss);
  *ResultData(first ? "step_first" : "step_next", "loss.loss") = loss;
  double* mean = Data(program::STATISTIC, "mean");
  for (int64_t j = 0; j < f; ++j) {
    double sum = 0;
    for (int64_t row = 0; row < options_.batch; ++row) {
      sum += Data(program::INPUT, "x")[row * f + j];
    }
    const double value = (1 - options_.momentum) * sum / static_cast<double>(options_.batch);
    mean[j] = first ? value : mean[j] * options_.momentum + value;
  }
  double seed = *Data(program::SCALAR, "seed.loss");
  if (options_.output_loss) seed /= static_cast<double>(options_.batch);
  for (int64_t row = 0; row < options_.batch; ++row) {
    const int64_t label = Ints(program::INPUT, "labels")[row];
    const bool ignored = options_.counted && label == kIgnore;
    for (int64_t k = 0; k < c; ++k) {
      double& value = p[static_cast<size_t>(row * c + k)];
      value = ignored ? 0 : seed * (value - (k == label ? 1 : 0));
    }
  }
  double* bias = Data(program::GRADIENT, "bias");
  double* weight = Data(program::GRADIENT, "weight");
  if (first) {
    std::fill(bias, bias + c, 0.0);
    std::fill(weight, weight + f * c, 0.0);
  }
  for (int64_t row = 0; row < options_.batch; ++row) {
    for (int64_t k = 0; k < c; ++k) bias[k] += p[static_cast<size_t>(row * c + k)];
  }
  std::this_thread::sleep_for(options_.backward);
  if (on_marker) on_marker(0);
  for (int64_t row = 0; row < options_.batch; ++row) {
    for (int64_t j = 0; j < f; ++j) {
      for (int64_t k = 0; k < c; ++k) {
        weight[j * c + k] +=
            inputs_[static_cast<size_t>(row * f + j)] * p[static_cast<size_t>(row * c + k)];
      }
    }
  }
  std::this_thread::sleep_for(options_.backward);
  if (on_marker) on_marker(1);
}

void FakeExecutor::Update() {
  const double rate =
      *Data(program::SCALAR, "lr") * (options_.clip ? *Data(program::SCALAR, "clip_coef") : 1);
  const double decay = *Data(program::SCALAR, "weight_decay");
  for (const char* name : {"bias", "weight"}) {
    const std::vector<double> gradient = Values(program::GRADIENT, name);
    double* parameter = Data(program::PARAMETER, name);
    double* sum = Data(program::OPTIMIZER, name, "sum");
    for (size_t i = 0; i < gradient.size(); ++i) {
      parameter[i] -= rate * (gradient[i] + decay * parameter[i]);
      if (sum != nullptr) sum[i] += gradient[i];
    }
  }
  double* mean = Data(program::STATE, "mean");
  const double keep = std::pow(options_.momentum, Ints(program::SCALAR, "stat_scale")[0]);
  for (int64_t j = 0; j < options_.features; ++j) {
    mean[j] = mean[j] * keep + Data(program::STATISTIC, "mean")[j];
  }
}

Status FakeExecutor::Run(const std::string& subprogram, const std::function<void(int)>& on_marker) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  if (subprogram == "count") {
    Count();
  } else if (subprogram == "step_first" || subprogram == "step_next") {
    Step(subprogram == "step_first", on_marker);
  } else if (subprogram == "stat_weight") {
    const double factor = std::pow(options_.momentum, Ints(program::SCALAR, "stat_scale")[1]);
    for (int64_t j = 0; j < options_.features; ++j) Data(program::STATISTIC, "mean")[j] *= factor;
  } else if (subprogram == "grad_norm" && options_.clip) {
    for (const char* name : {"bias", "weight"}) {
      double sum = 0;
      for (const double g : Values(program::GRADIENT, name)) sum += g * g;
      *ResultData("grad_norm", name) = sum;
    }
  } else if (subprogram == "update") {
    Update();
  } else if (subprogram == "eval") {
    std::vector<double> p;
    Forward(false, &p, ResultData("eval", "loss.loss"));
  } else {
    return Internal("no subprogram " + subprogram);
  }
  if (sink_ != nullptr) {
    const int count = FindSubProgram(program_, subprogram)->instructions_size();
    sink_->assign(static_cast<size_t>(count),
                  {now, std::chrono::steady_clock::now().time_since_epoch().count()});
  }
  return Status::Ok();
}

}  // namespace hyper::runtime::testing
