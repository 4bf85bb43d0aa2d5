// Template "matrix": square matrices in the last two dims, one per task step: det, det_grad. The
// loops stand in the text of the prelude (matrix_prelude.cc); a kernel gives them its strides.
#include <fmt/format.h>

#include "codegen/emit/loops.h"
#include "ir/op_def.h"

namespace hyper::codegen {
namespace {

// "&p1[...], row stride, column stride" of the matrix at `batch`.
std::string MatrixAt(const std::vector<lower::Operand>& operands, size_t operand, Names batch) {
  const ir::Dims& strides = operands[operand].view.strides;
  batch.resize(batch.size() + 2, "0");
  return fmt::format("&{}, {}, {}", At(operands, operand, batch), strides[strides.size() - 2],
                     strides.back());
}

}  // namespace

Result<std::string> EmitMatrix(const lower::GeneratedKernel& kernel,
                               const std::vector<lower::Operand>& operands) {
  const ir::Node& node = kernel.body.node(kernel.body.order()[0]);
  const bool backward = node.op->name == "det_grad";
  const ir::TensorType& matrices = operands[backward ? 1 : 0].view.type;
  const ir::Dims& dims = matrices.dims;
  const Names batch = NumberedNames("b", dims.size() - 2);
  std::string text = KernelHead(operands, node.inputs.size());
  text += OpenUnits(ir::Dims(dims.begin(), dims.end() - 2), batch);
  const std::string type = CType(matrices.dtype);
  if (backward) {
    text += fmt::format("    hy_cofactors<{}>({}, {}, {}, {}, {});\n", type, dims.back(),
                        At(operands, 0, batch), MatrixAt(operands, 1, batch),
                        MatrixAt(operands, 2, batch), MatrixAt(operands, 3, batch));
  } else {
    text += fmt::format("    {} = hy_lu<{}>({}, {}, {}, {});\n", At(operands, 1, batch), type,
                        dims.back(), MatrixAt(operands, 0, batch), MatrixAt(operands, 2, batch),
                        MatrixAt(operands, 3, batch));
  }
  return text + CloseUnits();
}

}  // namespace hyper::codegen
