// Reference kernels: plain loops over row-major tensors, written from the definitions in
// ir/core_ops.md and sharing no code with the kernel emitter. They are the oracle of all tests,
// fold constants in the front end, and run a bundle with --kernels=reference. Thread safety: pure
// functions.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace hyper::ir {

struct ConstTensorRef {
  const TensorType* type;
  const std::byte* data;
};
struct TensorRef {
  const TensorType* type;
  std::byte* data;
};

// Runs one op. Outputs are preallocated with the inferred types; an output may share memory with an
// input only where the op is an update whose record says so. With `accumulate`, adds to output 0
// instead of overwriting it (ops whose record accumulates).
Status RunReference(const OpDef& op, const Attributes& attributes, int64_t op_id,
                    std::span<const ConstTensorRef> inputs, std::span<const TensorRef> outputs,
                    bool accumulate = false);

// True when a reference kernel exists for the op (a test demands it for every op).
bool HasReference(std::string_view op);

// Interprets a whole function on host tensors, one entry per argument; returns one per result.
Result<std::vector<HostTensor>> Evaluate(const Function& function,
                                         std::span<const HostTensor> arguments);

// Evaluates a scalar expression on doubles/int64 with rounding to each node's dtype.
struct ScalarValue {
  double f = 0;
  int64_t i = 0;
};
ScalarValue EvaluateExpr(const Expr& expr, std::span<const ScalarValue> inputs);

}  // namespace hyper::ir
