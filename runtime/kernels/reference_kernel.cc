// Runs a core op by its reference kernel. Strided operands go through dense staging copies that are
// allocated here once.
#include <cstring>

#include <fmt/format.h>

#include "ir/op_def.h"
#include "ir/reference/reference.h"
#include "runtime/kernels/kernels.h"

namespace hyper::runtime {
namespace {

bool IsDense(const program::Operand& operand) {
  const ir::TensorType type = TypeOf(operand);
  const ir::Dims strides = ir::RowMajorStrides(type.dims);
  for (int d = 0; d < type.rank(); ++d) {
    if (type.dims[static_cast<size_t>(d)] > 1 &&
        strides[static_cast<size_t>(d)] != operand.strides(d)) {
      return false;
    }
  }
  return true;
}

class ReferencePrepared : public PreparedKernel {
 public:
  ReferencePrepared(const ir::OpDef* op, ir::Attributes attributes, int64_t op_id, char* arena)
      : op_(op), attributes_(std::move(attributes)), op_id_(op_id), arena_(arena) {}

  void AddOperand(const program::Operand& operand, bool output) {
    Place place{operand, TypeOf(operand), output, {}};
    const bool accumulate = operand.access() == program::ACCUMULATE;
    accumulate_ = accumulate_ || (output && accumulate);
    if (!IsDense(operand)) place.staging.resize(static_cast<size_t>(place.type.bytes()));
    staging_bytes_ += static_cast<int64_t>(place.staging.size());
    places_.push_back(std::move(place));
  }
  int64_t staging_bytes() const { return staging_bytes_; }

  Status Run(const Team&) override {
    std::vector<ir::ConstTensorRef> inputs;
    std::vector<ir::TensorRef> outputs;
    for (Place& place : places_) {
      std::byte* data = place.staging.empty()
                            ? reinterpret_cast<std::byte*>(arena_ + place.operand.offset())
                            : place.staging.data();
      if (!place.staging.empty() && (!place.output || place.operand.access() != program::WRITE)) {
        CopyToDense(place.operand, arena_, data);
      }
      if (place.output) {
        outputs.push_back({&place.type, data});
      } else {
        inputs.push_back({&place.type, data});
      }
    }
    HYPER_RETURN_IF_ERROR(
        ir::RunReference(*op_, attributes_, op_id_, inputs, outputs, accumulate_));
    for (const Place& place : places_) {
      if (place.output && !place.staging.empty()) {
        CopyFromDense(place.operand, place.staging.data(), arena_);
      }
    }
    return Status::Ok();
  }

 private:
  struct Place {
    program::Operand operand;
    ir::TensorType type;
    bool output;
    std::vector<std::byte> staging;
  };
  const ir::OpDef* op_;
  ir::Attributes attributes_;
  int64_t op_id_;
  char* arena_;
  bool accumulate_ = false;
  int64_t staging_bytes_ = 0;
  std::vector<Place> places_;
};

}  // namespace

Result<std::unique_ptr<PreparedKernel>> PrepareReference(const std::string& op,
                                                         const ir::Attributes& attributes,
                                                         int64_t op_id, Operands operands,
                                                         const PrepareContext& context) {
  const ir::OpDef* def = ir::CoreOps().Find(op);
  if (def == nullptr || !ir::HasReference(op)) {
    return DataLoss(fmt::format("the program asks for the unknown core op '{}'", op));
  }
  auto kernel = std::make_unique<ReferencePrepared>(def, attributes, op_id, context.arena);
  int used = 0;
  for (const program::Operand& operand : operands) {
    if (operand.access() != program::WORKSPACE) ++used;
  }
  const int inputs = used - def->outputs;
  int position = 0;
  for (const program::Operand& operand : operands) {
    if (operand.access() == program::WORKSPACE) continue;
    kernel->AddOperand(operand, position >= inputs);
    ++position;
  }
  if (context.staging_bytes != nullptr) *context.staging_bytes += kernel->staging_bytes();
  return std::unique_ptr<PreparedKernel>(std::move(kernel));
}

}  // namespace hyper::runtime
