#include "frontend/onnx/indexing.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace hyper::onnx_frontend {

void RequireIndices(const NodeContext& c, int i) {
  const DType dtype = c.Type(i).dtype;
  if (dtype != DType::kI32 && dtype != DType::kI64) {
    Fail(fmt::format("indices have type {}; int32 or int64 is expected", ir::DTypeName(dtype)));
  }
}

// Known indices are checked here; others are data and are checked where the data is read.
void CheckRange(const NodeContext& c, int i, int64_t extent) {
  const ir::HostTensor* known = c.Known(i);
  for (int64_t k = 0; known != nullptr && k < known->type().elements(); ++k) {
    const int64_t v = known->ElementAsInt(k);
    if (v < -extent || v >= extent) Fail(fmt::format("index {} into a dim of {}", v, extent));
  }
}

ValueId FlatTuples(NodeContext& c, const Dims& data, size_t batch) {
  const Dims& indices = c.Shape(1);
  const int64_t k = indices.back();
  if (k < 1 || batch + static_cast<size_t>(k) > data.size())
    Fail("index tuples are longer than the data's rank");
  int64_t batches = 1;
  for (size_t i = 0; i < batch; ++i) {
    if (data[i] != indices[i]) Fail("batch dims of data and indices differ");
    batches *= data[i];
  }
  const size_t outer = batch + static_cast<size_t>(k);
  const int64_t leading = ir::ElementCount(std::span(data).first(outer));
  if (const ir::HostTensor* known = c.Known(1)) {
    for (int64_t i = 0; i < known->type().elements(); ++i) {
      const int64_t extent = data[batch + static_cast<size_t>(i % k)];
      const int64_t v = known->ElementAsInt(i);
      if (v >= -extent && v < extent) continue;
      Fail(fmt::format("index {} of tuple {} into dim {} of {}", v, i / k,
                       batch + static_cast<size_t>(i % k), extent));
    }
  }
  // One index outside its own dim must not name another place: such a tuple gets a number that is
  // outside all of the flattened dims, even counted from their end.
  const int64_t nowhere = -leading - 1;
  const ValueId wide = c.b().Cast(DType::kI64, c.In(1));
  const Dims tuple_dims(indices.begin(), indices.end() - 1);
  ValueId flat;
  for (int64_t j = 0; j < k; ++j) {
    Dims starts(indices.size(), 0);
    Dims limits = indices;
    starts.back() = j;
    limits.back() = j + 1;
    const ValueId column = c.Reshape(
        c.Add1("slice", {wide},
               {{"starts", starts}, {"limits", limits}, {"strides", Dims(indices.size(), 1)}}),
        tuple_dims);
    const int64_t extent = data[batch + static_cast<size_t>(j)];
    std::vector<ValueId> operands = {column};
    if (flat.valid()) operands.push_back(flat);
    flat = c.MapValues(operands, [&](ExprBuilder& e, Args a) {
      const int zero = e.ConstantInt(DType::kI64, 0);
      const int size = e.ConstantInt(DType::kI64, extent);
      const int index =
          e.Select(e.Binary(ScalarOp::kLt, a[0], zero), e.Binary(ScalarOp::kAdd, a[0], size), a[0]);
      int outside = e.Binary(ScalarOp::kOr, e.Binary(ScalarOp::kLt, index, zero),
                             e.Binary(ScalarOp::kGe, index, size));
      int number = index;
      if (a.size() == 2) {
        outside = e.Binary(ScalarOp::kOr, outside, e.Binary(ScalarOp::kLt, a[1], zero));
        number = e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, a[1], size), index);
      }
      return e.Select(outside, e.ConstantInt(DType::kI64, nowhere), number);
    });
  }
  if (batch > 0) {
    const int64_t per_batch = leading / std::max<int64_t>(1, batches);
    const int64_t tuples = ir::ElementCount(tuple_dims) / std::max<int64_t>(1, batches);
    const ValueId number = c.Reshape(
        c.Add1("iota", {},
               {{"shape", Dims{batches, tuples}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}}),
        tuple_dims);
    flat = c.MapValues({flat, number}, [&](ExprBuilder& e, Args a) {
      const int number =
          e.Binary(ScalarOp::kAdd, a[0],
                   e.Binary(ScalarOp::kMul, a[1], e.ConstantInt(DType::kI64, per_batch)));
      return e.Select(e.Binary(ScalarOp::kLt, a[0], e.ConstantInt(DType::kI64, 0)), a[0], number);
    });
  }
  return flat;
}

}  // namespace hyper::onnx_frontend
