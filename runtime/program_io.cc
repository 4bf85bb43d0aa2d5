#include "runtime/program_io.h"

#include <algorithm>

#include <fmt/format.h>

namespace hyper::runtime {

ir::DType DTypeOf(program::DType dtype) { return static_cast<ir::DType>(static_cast<int>(dtype)); }

ir::TensorType TypeOf(const program::Operand& place) {
  return {DTypeOf(place.dtype()), ir::Dims(place.dims().begin(), place.dims().end())};
}

Result<std::vector<InputSpec>> InputsOf(const program::Program& program) {
  std::vector<InputSpec> inputs;
  for (const program::Slot* slot : InputSlotsOf(program)) {
    InputSpec spec{slot->name(), TypeOf(slot->place())};
    if (spec.type.rank() < 1 || spec.type.dims[0] != program.micro_batch()) {
      return FailedPrecondition(fmt::format(
          "input '{}' is {}, its first dim is not the micro-batch of {}: data cannot feed it",
          spec.name, spec.type.ToString(), program.micro_batch()));
    }
    inputs.push_back(std::move(spec));
  }
  return inputs;
}

std::vector<const program::Slot*> InputSlotsOf(const program::Program& program) {
  std::vector<const program::Slot*> slots;
  for (const program::Slot& slot : program.slots()) {
    if (slot.storage() == program::INPUT) slots.push_back(&slot);
  }
  return slots;
}

std::map<std::string, LabelRange> LabelRangesOf(const program::Program& program) {
  std::map<std::string, LabelRange> ranges;
  for (const program::LossTerm& term : program.losses()) {
    if (term.unit_targets() && !term.labels().empty()) {
      LabelRange range;
      range.unit = true;
      ranges.emplace(term.labels(), range);
    }
    if (!IsCrossEntropy(term)) continue;
    LabelRange range{term.classes(), {}};
    if (term.has_ignore()) range.ignore_index = term.ignore_index();
    range.class_axis = term.class_axis();
    const auto [it, fresh] = ranges.emplace(term.labels(), range);
    if (fresh) continue;
    // Labels of several terms have to suit all of them.
    it->second.classes = std::min(it->second.classes, range.classes);
    if (it->second.ignore_index != range.ignore_index) it->second.ignore_index.reset();
  }
  // A label that is an index too has to suit both.
  for (const program::IndexInput& input : program.index_inputs()) {
    const auto [it, fresh] = ranges.emplace(input.name(), LabelRange{input.extent(), {}, true});
    if (!fresh) it->second.classes = std::min(it->second.classes, input.extent());
  }
  return ranges;
}

const program::SubProgram* FindSubProgram(const program::Program& program,
                                          const std::string& name) {
  for (const program::SubProgram& subprogram : program.subprograms()) {
    if (subprogram.name() == name) return &subprogram;
  }
  return nullptr;
}

const program::Operand* FindResult(const program::Program& program, const std::string& subprogram,
                                   const std::string& name) {
  const program::SubProgram* found = FindSubProgram(program, subprogram);
  if (found == nullptr) return nullptr;
  for (const program::Operand& result : found->results()) {
    if (result.name() == name) return &result;
  }
  return nullptr;
}

double ReadScalar(const Executor& executor, const program::Operand& place) {
  if (place.dtype() == program::F64) {
    double value = 0;
    executor.ReadOperand(place, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  if (place.dtype() == program::F32) {
    float value = 0;
    executor.ReadOperand(place, std::as_writable_bytes(std::span(&value, 1)));
    return static_cast<double>(value);
  }
  return static_cast<double>(ReadScalarInt(executor, place));
}

int64_t ReadScalarInt(const Executor& executor, const program::Operand& place) {
  if (place.dtype() == program::I32) {
    int32_t value = 0;
    executor.ReadOperand(place, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  HYPER_CHECK(place.dtype() == program::I64, place.name());
  int64_t value = 0;
  executor.ReadOperand(place, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

void ScalarSlot::Set(double value) {
  if (slot_ == nullptr) return;
  if (slot_->place().dtype() == program::F64) {
    executor_->WriteOperand(slot_->place(), std::as_bytes(std::span(&value, 1)));
  } else {
    const float narrow = static_cast<float>(value);
    HYPER_CHECK(slot_->place().dtype() == program::F32, slot_->name());
    executor_->WriteOperand(slot_->place(), std::as_bytes(std::span(&narrow, 1)));
  }
}

void ScalarSlot::Set(std::span<const int64_t> values) {
  if (slot_ == nullptr) return;
  HYPER_CHECK(slot_->place().dtype() == program::I64, slot_->name());
  executor_->WriteOperand(slot_->place(), std::as_bytes(values));
}

ScalarSlot FindScalar(Executor* executor, const std::string& name) {
  return {executor, executor->FindSlot(program::SCALAR, name)};
}

ScalarSlot FindRng(Executor* executor) {
  for (const program::Slot& slot : executor->program().slots()) {
    if (slot.storage() == program::SCALAR && slot.place().dtype() == program::I64 &&
        slot.place().dims_size() == 1 && slot.place().dims(0) == 3) {
      return {executor, &slot};
    }
  }
  return {};
}

}  // namespace hyper::runtime
