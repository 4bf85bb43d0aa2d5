// Shared by the op records: shape checks whose messages name the dim, the value found and what
// fits, sharding letters and costs.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/op_def.h"

namespace hyper::ir {

using Types = std::span<const TensorType>;
using InferResult = Result<std::vector<TensorType>>;

// "input 1 is i32[4], expected ..." and relatives; ok when the condition holds. `i` counts inputs.
Status ExpectRank(Types in, int i, int rank);
Status ExpectMinRank(Types in, int i, int rank);
Status ExpectDims(Types in, int i, const Dims& expected, std::string_view why);
Status ExpectDim(Types in, int i, int dim, int64_t expected, std::string_view why);
Status ExpectFloat(Types in, int i);
Status ExpectNumeric(Types in, int i);  // anything but bool
Status ExpectIndex(Types in, int i);    // i32 or i64
Status ExpectDType(Types in, int i, DType dtype, std::string_view why);
// Attribute checks.
Status ExpectAxis(std::string_view name, int64_t axis, int rank);
Status ExpectAxes(std::string_view name, const Dims& axes, int rank);  // in range, no repeats
Status ExpectEntries(std::string_view name, const Dims& values, int count);
Status ExpectEach(std::string_view name, const Dims& values, int64_t minimum);
Status ExpectAtMost(std::string_view name, const Dims& values, int64_t maximum);
Status ExpectOneOf(std::string_view name, const std::string& value,
                   std::initializer_list<std::string_view> allowed);

// Dims with position `axis` removed or replaced.
Dims Without(const Dims& dims, int64_t axis);
Dims With(const Dims& dims, int64_t axis, int64_t extent);
// 0, 1, ..., n-1
Dims Sequence(int64_t n, int64_t first = 0);
bool Contains(const Dims& values, int64_t value);

// Operands read and results written once, plus `flops`.
OpCost MemoryCost(Types in, Types out, double flops);
// A CostFunction of `flops_per_element` of output 0 (or of input 0 when `of_input`).
CostFunction ElementCost(double flops_per_element, bool of_input = false);

// Hands out fresh factor letters of one sharding rule.
class Letters {
 public:
  std::string Next(int64_t count);

 private:
  int used_ = 0;
};
// Every operand and result has the dims of output 0, all pass-through except the replicated `axes`.
ShardingFactors PassThrough(Types in, Types out, const Dims& replicated_axes);

// The attribute `name` holds the dims of output 0.
LocalizeFunction LocalShape(std::string name);

// Broadcasts `v`, whose dims are those of `shape` without `axes`, back over `axes`.
ValueId BroadcastOver(Builder& b, ValueId v, const Dims& shape, const Dims& axes);
// x * constant as a map; no node for 1.
ValueId Scale(Builder& b, ValueId v, double factor);
// a + b where invalid means zero.
ValueId AddMaybe(Builder& b, ValueId x, ValueId y);

}  // namespace hyper::ir
