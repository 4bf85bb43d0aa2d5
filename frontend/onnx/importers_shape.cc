// Shapes and constants: what folds away, and reshapes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/load.h"
#include "frontend/onnx/tensor_data.h"

namespace hyper::onnx_frontend {
namespace {

using ir::HostTensor;

void Shape(NodeContext& c) {
  const Dims dims = c.Shape(0);
  const int64_t rank = static_cast<int64_t>(dims.size());
  auto bound = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank); };
  const int64_t start = bound(c.Int("start", 0));
  const int64_t end = std::max(start, bound(c.Int("end", rank)));
  const std::vector<int64_t> part(dims.begin() + start, dims.begin() + end);
  c.OutConstant(0, HostTensor::FromVector(DType::kI64, {end - start}, part));
}

void Size(NodeContext& c) { c.OutConstant(0, HostTensor::ScalarI64(c.Type(0).elements())); }

void Constant(NodeContext& c) {
  c.OutConstant(0, OrFail(ReadConstantNode(c.node(), nullptr, nullptr)));
}

void ConstantOfShape(NodeContext& c) {
  const Dims dims = c.Ints(0, "the shape");
  CheckDims(dims);
  HostTensor value = HostTensor::ScalarF32(0);
  if (const auto* a = c.Attribute("value"); a != nullptr) {
    value = OrFail(ReadTensor(a->t(), nullptr, nullptr));
    if (value.type().elements() != 1) Fail("value must hold one element");
  }
  const HostTensor scalar({value.type().dtype, {}}, value.bytes());
  c.Out(0, c.b().Broadcast(c.b().Constant(scalar), dims, {}));
}

// Its elements become constants of the program.
constexpr int64_t kLongestRange = int64_t{1} << 22;

void Range(NodeContext& c) {
  const DType dtype = c.Type(0).dtype;
  std::vector<double> v;
  for (int i : {0, 1, 2}) v.push_back(c.Scalar(i, "a bound of the range"));
  if (v[2] == 0 || !std::isfinite(v[0]) || !std::isfinite(v[1]) || !std::isfinite(v[2])) {
    Fail(fmt::format(
        "a range from {} to {} by {}; finite bounds and a step other than 0 are expected", v[0],
        v[1], v[2]));
  }
  const auto check = [](auto count) {
    if (count > kLongestRange) {
      Unsupported(fmt::format("a range of {} elements; {} are the most", static_cast<double>(count),
                              kLongestRange));
    }
    return static_cast<int64_t>(count);
  };
  if (ir::IsFloat(dtype)) {
    const int64_t n = check(std::max(0.0, std::ceil((v[1] - v[0]) / v[2])));
    std::vector<double> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(v[0] + static_cast<double>(i) * v[2]);
    c.OutConstant(0, ConvertTensor(HostTensor::FromVector(DType::kF64, {n}, values), dtype));
    return;
  }
  const int64_t start = c.Known(0)->ElementAsInt(0);
  const int64_t delta = c.Known(2)->ElementAsInt(0);
  // Differences of 64-bit numbers need one bit more.
  const __int128 span = static_cast<__int128>(c.Known(1)->ElementAsInt(0)) - start;
  const __int128 steps = (span + delta + (delta > 0 ? -1 : 1)) / delta;
  const int64_t n = check(std::max<__int128>(0, steps));
  std::vector<int64_t> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(start + i * delta);
  c.OutConstant(0, ConvertTensor(HostTensor::FromVector(DType::kI64, {n}, values), dtype));
}

void Identity(NodeContext& c) { c.OutTensor(0, c.AnyOperand(0)); }

void Reshape(NodeContext& c) {
  Dims target = c.Ints(1, "the target shape");
  const Dims from = c.Shape(0);
  const bool allow_zero = c.Int("allowzero", 0) != 0;
  int64_t known = 1;
  int unknown = -1;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == 0 && !allow_zero) {
      if (i >= from.size())
        Fail(fmt::format("dim {} is to be copied from {}", i, FormatDims(from)));
      target[i] = from[i];
    }
    if (target[i] == -1) {
      if (unknown >= 0) Fail("two dims are -1");
      unknown = static_cast<int>(i);
    } else {
      if (target[i] < 0 || target[i] > (int64_t{1} << 40))
        Fail(fmt::format("extent {} in the target shape", target[i]));
      if (target[i] != 0 && known > (int64_t{1} << 40) / target[i])
        Fail("the target shape is too large");
      known *= target[i];
    }
  }
  if (unknown >= 0) {
    const int64_t total = c.Type(0).elements();
    if (known == 0 || total % known != 0) {
      Fail(fmt::format("cannot reshape {} to {}", FormatDims(from), FormatDims(target)));
    }
    target[static_cast<size_t>(unknown)] = total / known;
  }
  c.Out(0, c.Reshape(c.In(0), target));
}

void Flatten(NodeContext& c) {
  const Dims dims = c.Shape(0);
  const int rank = c.Type(0).rank();
  int64_t axis = c.Int("axis", 1);
  if (axis < -rank || axis > rank) Fail(fmt::format("axis {} of a tensor of rank {}", axis, rank));
  if (axis < 0) axis += rank;
  Dims flat = {1, 1};
  for (int i = 0; i < rank; ++i) flat[i < axis ? 0 : 1] *= dims[static_cast<size_t>(i)];
  c.Out(0, c.Reshape(c.In(0), flat));
}

void Squeeze(NodeContext& c) {
  const Dims dims = c.Shape(0);
  const auto axes = c.Axes(1);
  std::vector<bool> drop(dims.size(), false);
  if (axes.has_value()) {
    for (int a : NormalAxes(*axes, c.Type(0).rank())) {
      if (dims[static_cast<size_t>(a)] != 1) {
        Fail(fmt::format("dim {} of {} is not 1", a, FormatDims(dims)));
      }
      drop[static_cast<size_t>(a)] = true;
    }
  } else {
    for (size_t i = 0; i < dims.size(); ++i) drop[i] = dims[i] == 1;
  }
  Dims kept;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!drop[i]) kept.push_back(dims[i]);
  }
  c.Out(0, c.Reshape(c.In(0), kept));
}

void Unsqueeze(NodeContext& c) {
  const auto axes = c.Axes(1);
  if (!axes.has_value()) Fail("no axes are given");
  const Dims dims = c.Shape(0);
  const int rank = static_cast<int>(dims.size() + axes->size());
  Dims wide(static_cast<size_t>(rank), 0);
  for (int a : NormalAxes(*axes, rank)) wide[static_cast<size_t>(a)] = 1;
  size_t next = 0;
  for (int64_t& d : wide) {
    if (d == 0) d = dims[next++];
  }
  c.Out(0, c.Reshape(c.In(0), wide));
}

void Transpose(NodeContext& c) {
  const int rank = c.Type(0).rank();
  Dims reversed(static_cast<size_t>(rank));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  const Dims perm = c.IntList("perm", reversed);
  Dims sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  Dims iota(static_cast<size_t>(rank));
  std::iota(iota.begin(), iota.end(), 0);
  if (sorted != iota) Fail(fmt::format("perm {} does not fit rank {}", FormatDims(perm), rank));
  c.Out(0, c.b().Transpose(c.In(0), perm));
}

void Expand(NodeContext& c) {
  const Dims target = c.Ints(1, "the target shape");
  CheckDims(target);
  const Dims dims = OrFail(ir::BroadcastDims(c.Shape(0), target));
  c.Out(0, c.BroadcastTo(c.In(0), dims));
}

void EyeLike(NodeContext& c) {
  const Dims dims = c.Shape(0);
  if (dims.size() != 2) Fail("the operand must have rank 2");
  const int64_t k = c.Int("k", 0);
  const int to = static_cast<int>(c.Int("dtype", DTypeToOnnx(c.Type(0).dtype)));
  const auto dtype = DTypeFromOnnx(to);
  if (!dtype.has_value()) Refuse(RefusalOfElementType(to), "element type " + OnnxTypeName(to));
  const ValueId row =
      c.Add1("iota", {}, {{"shape", dims}, {"axis", int64_t{0}}, {"dtype", DType::kI64}});
  const ValueId column =
      c.Add1("iota", {}, {{"shape", dims}, {"axis", int64_t{1}}, {"dtype", DType::kI64}});
  c.Out(0, c.MapValues({row, column}, [&](ExprBuilder& e, std::span<const int> a) {
    const int shifted = e.Binary(ScalarOp::kAdd, a[0], e.ConstantInt(DType::kI64, k));
    return e.Cast(*dtype, e.Binary(ScalarOp::kEq, shifted, a[1]));
  }));
}

constexpr std::string_view kShape = "its result depends on the shape alone";

}  // namespace

void RegisterShapeImporters(ImportTable& t) {
  t.Add({"Shape", 1, 25, Shape, "a constant", {}, {}, kShape});
  t.Add({"Size", 1, 25, Size, "a constant", {}, {}, kShape});
  t.Add({"Constant", 1, 25, Constant, "a constant or a parameter"});
  t.Add({"ConstantOfShape", 9, 25, ConstantOfShape, "a broadcast constant", {0}});
  t.Add({"Range", 11, 27, Range, "a constant", {0, 1, 2}});
  t.Add({"Identity", 1, 25, Identity, "nothing", {}, {}, {}, {}, true});
  t.Add({"Reshape", 5, 25, Reshape, "reshape", {1}});
  t.Add({"Flatten", 1, 25, Flatten, "reshape"});
  t.Add({"Squeeze", 1, 25, Squeeze, "reshape", {1}});
  t.Add({"Unsqueeze", 1, 25, Unsqueeze, "reshape", {1}});
  t.Add({"Transpose", 1, 25, Transpose, "transpose"});
  t.Add({"Expand", 8, 13, Expand, "broadcast", {1}});
  t.Add({"EyeLike", 9, 22, EyeLike, "iota and map", {}, {}, kShape});
}

}  // namespace hyper::onnx_frontend
