// Reading by index.
#include <fmt/format.h>

#include <algorithm>

#include "base/strings.h"
#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

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

void Gather(NodeContext& c) {
  RequireIndices(c, 1);
  const int axis = NormalAxis(c.Int("axis", 0), c.Type(0).rank());
  CheckRange(c, 1, c.Shape(0)[static_cast<size_t>(axis)]);
  c.Out(0, c.Add1("gather", {c.In(0), c.In(1)}, {{"axis", int64_t{axis}}}));
}

void GatherElements(NodeContext& c) {
  RequireIndices(c, 1);
  const int axis = NormalAxis(c.Int("axis", 0), c.Type(0).rank());
  if (c.Type(1).rank() != c.Type(0).rank()) Fail("data and indices must have one rank");
  CheckRange(c, 1, c.Shape(0)[static_cast<size_t>(axis)]);
  // Dims other than the axis may be shorter in the indices: only that part of the data is read.
  Dims limits = c.Shape(0);
  bool crop = false;
  for (int i = 0; i < c.Type(0).rank(); ++i) {
    const size_t d = static_cast<size_t>(i);
    if (i == axis) continue;
    if (c.Shape(1)[d] > limits[d]) Fail("indices are longer than the data");
    crop = crop || c.Shape(1)[d] < limits[d];
    limits[d] = c.Shape(1)[d];
  }
  ValueId x = c.In(0);
  if (crop) {
    x = c.Add1("slice", {x},
               {{"starts", Dims(limits.size(), 0)},
                {"limits", limits},
                {"strides", Dims(limits.size(), 1)}});
  }
  c.Out(0, c.Add1("gather_elements", {x, c.In(1)}, {{"axis", int64_t{axis}}}));
}

// Index tuples become numbers into the flattened leading dims.
void GatherNd(NodeContext& c) {
  RequireIndices(c, 1);
  const Dims data = c.Shape(0);
  const Dims indices = c.Shape(1);
  const int64_t batch_dims = c.Int("batch_dims", 0);
  if (indices.empty() || data.empty() || batch_dims < 0 ||
      batch_dims >= static_cast<int64_t>(std::min(data.size(), indices.size()))) {
    Fail("data and indices must have more dims than batch_dims");
  }
  const size_t batch = static_cast<size_t>(batch_dims);
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
  Dims rest(data.begin() + static_cast<long>(outer), data.end());
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
      const int negative = e.Binary(ScalarOp::kLt, a[0], e.ConstantInt(DType::kI64, 0));
      const int size = e.ConstantInt(DType::kI64, extent);
      const int index = e.Select(negative, e.Binary(ScalarOp::kAdd, a[0], size), a[0]);
      if (a.size() == 1) return index;
      return e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, a[1], size), index);
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
      return e.Binary(ScalarOp::kAdd, a[0],
                      e.Binary(ScalarOp::kMul, a[1], e.ConstantInt(DType::kI64, per_batch)));
    });
  }
  Dims rows = {leading};
  rows.insert(rows.end(), rest.begin(), rest.end());
  c.Out(0, c.Add1("gather", {c.Reshape(c.In(0), rows), flat}, {{"axis", int64_t{0}}}));
}

void OneHot(NodeContext& c) {
  const double depth_value = c.Scalar(1, "the depth");
  if (!(depth_value >= 0 && depth_value < 1e9)) Fail("the depth is out of range");
  const int64_t depth = static_cast<int64_t>(depth_value);
  const ir::HostTensor values = c.RequireKnown(2, "the values");
  if (values.type().elements() != 2) Fail("values must hold two elements");
  const DType dtype = values.type().dtype;
  const int rank = c.Type(0).rank() + 1;
  const int axis = NormalAxis(c.Int("axis", -1), rank);
  Dims dims = c.Shape(0);
  dims.insert(dims.begin() + axis, depth);
  Dims at;
  for (int i = 0; i < rank; ++i) {
    if (i != axis) at.push_back(i);
  }
  CheckDims(dims);
  const ValueId index = c.b().Broadcast(c.b().Cast(DType::kI64, c.In(0)), dims, at);
  const ValueId position =
      c.Add1("iota", {}, {{"shape", dims}, {"axis", int64_t{axis}}, {"dtype", DType::kI64}});
  c.Out(0, c.MapValues({index, position}, [&](ExprBuilder& e, Args a) {
    auto constant = [&](int64_t i) {
      return ir::IsFloat(dtype) ? e.Constant(dtype, values.ElementAsDouble(i))
                                : e.ConstantInt(dtype, values.ElementAsInt(i));
    };
    const int negative = e.Binary(ScalarOp::kLt, a[0], e.ConstantInt(DType::kI64, 0));
    const int wrapped =
        e.Select(negative, e.Binary(ScalarOp::kAdd, a[0], e.ConstantInt(DType::kI64, depth)), a[0]);
    return e.Select(e.Binary(ScalarOp::kEq, wrapped, a[1]), constant(1), constant(0));
  }));
}

}  // namespace

void RegisterIndexingImporters(ImportTable& t) {
  t.Add({"Gather", 1, 13, Gather, "gather", {}, {0}});
  t.Add({"GatherElements", 11, 13, GatherElements, "gather_elements"});
  t.Add({"GatherND", 11, 13, GatherNd, "map on the indices and gather"});
  t.Add({"OneHot", 9, 11, OneHot, "iota and map", {1, 2}, {}, "its operand is an index"});
}

}  // namespace hyper::onnx_frontend
