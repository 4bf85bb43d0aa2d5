// Appends checked nodes to a Function: runs the op's inference, folds nothing. Used by the front
// end, autodiff and passes. Errors in inputs (wrong shapes from a user's model) come back as
// Status; the typed helpers below are for callers whose shapes are right by construction and
// raise an internal error otherwise.
// Thread safety: none.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "ir/expr.h"
#include "ir/graph.h"
#include "ir/op_def.h"

namespace hyper::ir {

class Builder {
 public:
  explicit Builder(Function* function) : function_(function) {}

  Function& function() { return *function_; }
  const TensorType& type(ValueId v) const { return function_->type(v); }
  // Given to every node added from here on.
  void SetContext(Role role, int64_t op_id, std::string source);

  // Fails with the op's own message ("dim 1 of input 0 is 3, expected 4").
  Result<std::vector<ValueId>> TryAdd(std::string_view op, std::vector<ValueId> inputs,
                                      Attributes attributes = {});
  std::vector<ValueId> Add(std::string_view op, std::vector<ValueId> inputs,
                           Attributes attributes = {});
  ValueId Add1(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});

  ValueId Constant(HostTensor value);
  ValueId ScalarConstant(DType dtype, double value);
  // A constant of one value filling `dims` (scalar constant + broadcast).
  ValueId Splat(DType dtype, Dims dims, double value);
  ValueId Map(Expr expr, std::vector<ValueId> inputs);
  // Single-operator maps; operands must have equal shapes.
  ValueId Unary(ScalarOp op, ValueId x);
  ValueId Binary(ScalarOp op, ValueId x, ValueId y);
  // x op constant of x's dtype.
  ValueId BinaryConstant(ScalarOp op, ValueId x, double constant);
  ValueId Select(ValueId condition, ValueId x, ValueId y);
  ValueId Cast(DType dtype, ValueId x);
  ValueId Broadcast(ValueId x, Dims shape, Dims dims);     // no node when nothing changes
  ValueId BroadcastNumpy(ValueId x, const Dims& shape);    // trailing dims aligned
  ValueId Reshape(ValueId x, Dims shape);                  // no node when nothing changes
  ValueId Transpose(ValueId x, Dims perm);                 // no node for the identity
  ValueId Reduce(std::string kind, ValueId x, Dims axes);  // no node for no axes
  ValueId Dot(std::string spec, ValueId a, ValueId b);

 private:
  Function* function_;
  Role role_ = Role::kForward;
  int64_t op_id_ = -1;
  std::string source_;
};

// Result dims of numpy broadcasting, or an error naming the dims that do not fit.
Result<Dims> BroadcastDims(const Dims& a, const Dims& b);

}  // namespace hyper::ir
