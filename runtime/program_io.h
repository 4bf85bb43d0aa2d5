// What the trainer and the evaluator need to find in a program: inputs, scalars, results.
// Thread safety: as the executor given.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "codegen/program.pb.h"
#include "ir/types.h"
#include "runtime/data/input_reader.h"
#include "runtime/executor.h"

namespace hyper::runtime {

ir::DType DTypeOf(program::DType dtype);
ir::TensorType TypeOf(const program::Operand& place);

// A term over classes; a term that is a scalar output of the model itself.
inline bool IsCrossEntropy(const program::LossTerm& term) { return term.classes() > 0; }
inline bool IsModelOutput(const program::LossTerm& term) { return term.labels().empty(); }

// All INPUT slots in program order. kFailedPrecondition for one whose first dim is not the
// micro-batch, which data cannot feed.
Result<std::vector<InputSpec>> InputsOf(const program::Program& program);
// Slots of these inputs, in the same order.
std::vector<const program::Slot*> InputSlotsOf(const program::Program& program);
// Values that cross-entropy labels and inputs that are indices may have.
std::map<std::string, LabelRange> LabelRangesOf(const program::Program& program);

const program::SubProgram* FindSubProgram(const program::Program& program, const std::string& name);
// Result `name` of the subprogram, or null.
const program::Operand* FindResult(const program::Program& program, const std::string& subprogram,
                                   const std::string& name);

// A one-element result as double / integer.
double ReadScalar(const Executor& executor, const program::Operand& place);
int64_t ReadScalarInt(const Executor& executor, const program::Operand& place);

// A runtime scalar; writing to one that the program does not have does nothing.
class ScalarSlot {
 public:
  ScalarSlot() = default;
  ScalarSlot(Executor* executor, const program::Slot* slot) : executor_(executor), slot_(slot) {}
  bool exists() const { return slot_ != nullptr; }
  void Set(double value);
  // Exactly the elements of the slot (i64).
  void Set(std::span<const int64_t> values);

 private:
  Executor* executor_ = nullptr;
  const program::Slot* slot_ = nullptr;
};

ScalarSlot FindScalar(Executor* executor, const std::string& name);
// The i64[3] key of random ops: seed, step (from 1), global micro-batch index.
ScalarSlot FindRng(Executor* executor);

}  // namespace hyper::runtime
