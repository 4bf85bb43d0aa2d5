// Reading by index.
#include <fmt/format.h>

#include <algorithm>

#include "frontend/onnx/importer.h"
#include "frontend/onnx/indexing.h"

namespace hyper::onnx_frontend {
namespace {

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
  const Dims& data = c.Shape(0);
  const int64_t batch_dims = c.Int("batch_dims", 0);
  if (c.Shape(1).empty() || data.empty() || batch_dims < 0 ||
      batch_dims >= static_cast<int64_t>(std::min(data.size(), c.Shape(1).size()))) {
    Fail("data and indices must have more dims than batch_dims");
  }
  const auto batch = static_cast<size_t>(batch_dims);
  const ValueId flat = FlatTuples(c, data, batch);
  const size_t outer = batch + static_cast<size_t>(c.Shape(1).back());
  Dims rows = {ir::ElementCount(std::span(data).first(outer))};
  rows.insert(rows.end(), data.begin() + static_cast<long>(outer), data.end());
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
