// Fourier transforms as products with constant matrices (of the factors of long lengths), and what
// goes with them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/sampling.h"
#include "frontend/onnx/tensor_data.h"

namespace hyper::onnx_frontend {
namespace {

using ir::HostTensor;

// Elements of a transform's matrix: above the first number the length is factored, above the second
// (a long length without factors) it would be larger than most models.
constexpr int64_t kGoodMatrix = int64_t{1} << 21;
constexpr int64_t kMaxMatrix = int64_t{1} << 24;
constexpr int64_t kMaxLength = int64_t{1} << 22;  // its rotations are constants

struct Transform {
  int64_t length = 0;   // of the full signal
  int64_t inputs = 0;   // elements read
  int64_t outputs = 0;  // elements given
  int64_t parts_in = 1;
  int64_t parts_out = 2;  // 1: the real part alone
  bool inverse = false;
  bool half_spectrum = false;  // the input lacks the conjugate half
};

// Matrix [inputs * parts_in, outputs * parts_out] of the transform.
HostTensor MatrixOf(const Transform& t) {
  const int64_t rows = t.inputs * t.parts_in;
  const int64_t columns = t.outputs * t.parts_out;
  if (columns > 0 && rows > kMaxMatrix / columns) {
    Unsupported(fmt::format("a transform of length {} (its matrix would have {} x {} elements)",
                            t.length, rows, columns));
  }
  const double sign = t.inverse ? 1 : -1;
  const double n = static_cast<double>(t.length);
  std::vector<double> matrix(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < t.inputs; ++i) {
    double factor = t.inverse ? 1 / n : 1;
    const bool own_conjugate = i == 0 || 2 * i == t.length;
    if (t.half_spectrum && !own_conjugate) factor *= 2;
    for (int64_t k = 0; k < t.outputs; ++k) {
      // The product is reduced first: angles stay small and exact.
      const double angle = sign * 2 * std::numbers::pi * static_cast<double>(i * k % t.length) / n;
      const double re = factor * std::cos(angle);
      const double im = factor * std::sin(angle);
      // (a + ib)(re + i im)
      for (int64_t p = 0; p < t.parts_in; ++p) {
        double* cell =
            &matrix[static_cast<size_t>((i * t.parts_in + p) * columns + k * t.parts_out)];
        cell[0] = p == 0 ? re : -im;
        if (t.parts_out == 2) cell[1] = p == 0 ? im : re;
      }
    }
  }
  return HostTensor::FromVector(DType::kF64, {rows, columns}, matrix);
}

// x: [..., inputs, parts_in] -> [..., outputs, parts_out]
ValueId Product(NodeContext& c, ValueId x, const Transform& t) {
  Dims dims = c.b().type(x).dims;
  const ValueId matrix = c.b().Cast(c.b().type(x).dtype, c.b().Constant(MatrixOf(t)));
  const int64_t rows = ir::ElementCount(std::span(dims).first(dims.size() - 2));
  const ValueId y = c.b().Dot("mk,kn->mn", c.Reshape(x, {rows, t.inputs * t.parts_in}), matrix);
  dims[dims.size() - 2] = t.outputs;
  dims.back() = t.parts_out;
  return c.Reshape(y, dims);
}

int64_t LargestFactorBelowRoot(int64_t n) {
  int64_t best = 1;
  for (int64_t p = 2; p * p <= n; ++p) {
    if (n % p == 0) best = p;
  }
  return best;
}

// x times exp(sign 2 pi i * t2 * k1 / n) for x: [rows, k1, t2, 2].
ValueId Twiddle(NodeContext& c, ValueId x, int64_t n, double sign) {
  const ir::TensorType type = c.b().type(x);
  std::vector<double> same;
  std::vector<double> other;  // factor of the other part: (re, im) * (cos, sin)
  for (int64_t k = 0; k < type.dims[1]; ++k) {
    for (int64_t t = 0; t < type.dims[2]; ++t) {
      const double angle =
          sign * 2 * std::numbers::pi * static_cast<double>(k * t % n) / static_cast<double>(n);
      same.insert(same.end(), {std::cos(angle), std::cos(angle)});
      other.insert(other.end(), {-std::sin(angle), std::sin(angle)});
    }
  }
  auto constant = [&](const std::vector<double>& values) {
    const Dims dims(type.dims.begin() + 1, type.dims.end());
    const ValueId v = c.b().Constant(HostTensor::FromVector(DType::kF64, dims, values));
    return c.b().Broadcast(c.b().Cast(type.dtype, v), type.dims, {1, 2, 3});
  };
  const ValueId swapped = c.Add1("reverse", {x}, {{"axes", Dims{3}}});
  return c.MapValues({x, swapped, constant(same), constant(other)}, [&](ExprBuilder& e, Args a) {
    return e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, a[0], a[2]),
                    e.Binary(ScalarOp::kMul, a[1], a[3]));
  });
}

// [rows, n, parts] -> [rows, n, 2], unscaled. Cooley and Tukey (1965): for n = p q, element
// t1 q + t2 and frequency k1 + p k2, transforms over t1, a rotation, and transforms over t2.
ValueId Factored(NodeContext& c, ValueId x, bool inverse) {
  const Dims dims = c.b().type(x).dims;
  const int64_t n = dims[1];
  const int64_t p = LargestFactorBelowRoot(n);
  if (p == 1 || n <= 64) {
    Transform t;
    t.length = t.inputs = t.outputs = n;
    t.parts_in = dims[2];
    t.inverse = inverse;
    const ValueId y = Product(c, x, t);
    return inverse ? c.b().BinaryConstant(ScalarOp::kMul, y, static_cast<double>(n)) : y;
  }
  const int64_t q = n / p;
  ValueId y = c.b().Transpose(c.Reshape(x, {dims[0], p, q, dims[2]}), {0, 2, 1, 3});
  y = Factored(c, c.Reshape(y, {dims[0] * q, p, dims[2]}), inverse);
  y = c.b().Transpose(c.Reshape(y, {dims[0], q, p, 2}), {0, 2, 1, 3});
  y = Twiddle(c, y, n, inverse ? 1 : -1);
  y = Factored(c, c.Reshape(y, {dims[0] * p, q, 2}), inverse);
  return c.Reshape(c.b().Transpose(c.Reshape(y, {dims[0], p, q, 2}), {0, 2, 1, 3}),
                   {dims[0], n, 2});
}

// [rows, n / 2 + 1, 2] with its conjugate half: [rows, n, 2].
ValueId WholeSpectrum(NodeContext& c, ValueId x, int64_t n) {
  const int64_t missing = n - c.b().type(x).dims[1];
  const ValueId mirrored =
      c.Add1("reverse", {SliceDim(c, x, 1, 1, 1 + missing)}, {{"axes", Dims{1}}});
  const ValueId real = SliceDim(c, mirrored, 2, 0, 1);
  const ValueId imaginary = c.b().Unary(ScalarOp::kNeg, SliceDim(c, mirrored, 2, 1, 2));
  const ValueId conjugate = c.Add1("concat", {real, imaginary}, {{"axis", int64_t{2}}});
  return c.Add1("concat", {x, conjugate}, {{"axis", int64_t{1}}});
}

ValueId Apply(NodeContext& c, ValueId x, const Transform& t) {
  if (t.length > kMaxLength) {
    Fail(fmt::format("a transform of length {}; at most {} is supported", t.length, kMaxLength));
  }
  const int64_t rows = t.inputs * t.parts_in;
  const bool good = rows <= kGoodMatrix / std::max<int64_t>(1, t.outputs * t.parts_out);
  if (good || LargestFactorBelowRoot(t.length) == 1) return Product(c, x, t);
  Dims dims = c.b().type(x).dims;
  const int64_t lines = ir::ElementCount(std::span(dims).first(dims.size() - 2));
  ValueId y = c.Reshape(x, {lines, t.inputs, t.parts_in});
  if (t.half_spectrum) y = WholeSpectrum(c, y, t.length);
  y = Factored(c, y, t.inverse);
  if (t.outputs < t.length) y = SliceDim(c, y, 1, 0, t.outputs);
  if (t.parts_out == 1) y = SliceDim(c, y, 2, 0, 1);
  if (t.inverse) {
    y = c.b().BinaryConstant(ScalarOp::kDiv, y, static_cast<double>(t.length));
  }
  dims[dims.size() - 2] = t.outputs;
  dims.back() = t.parts_out;
  return c.Reshape(y, dims);
}

int64_t Length(NodeContext& c, int operand, std::string_view what) {
  const double length = c.Scalar(operand, what);
  if (!(length >= 1 && length < 1e9)) Fail(fmt::format("{} is {}", what, length));
  return static_cast<int64_t>(length);
}

// Crops x or appends zeros along the dim before the last.
ValueId FitLength(NodeContext& c, ValueId x, int64_t length) {
  const Dims dims = c.b().type(x).dims;
  const int axis = static_cast<int>(dims.size()) - 2;
  const int64_t have = dims[static_cast<size_t>(axis)];
  if (have > length) return SliceDim(c, x, axis, 0, length);
  if (have == length) return x;
  Dims high(dims.size(), 0);
  high[static_cast<size_t>(axis)] = length - have;
  return c.Add1("pad", {x},
                {{"low", Dims(dims.size(), 0)},
                 {"high", high},
                 {"interior", Dims(dims.size(), 0)},
                 {"value", 0.0},
                 {"mode", std::string("constant")}});
}

void Dft(NodeContext& c) {
  const Dims dims = c.Shape(0);
  const int rank = static_cast<int>(dims.size());
  if (rank < 2 || (dims.back() != 1 && dims.back() != 2)) {
    Fail(
        fmt::format("the input {} must end in a dim of 1 (real) or 2 (complex)", FormatDims(dims)));
  }
  int64_t axis_given = c.Int("axis", 1);
  if (c.since() >= 20) {
    axis_given = c.Has(2) ? static_cast<int64_t>(c.Scalar(2, "the axis")) : -2;
  }
  const int axis = NormalAxis(axis_given, rank);
  if (axis == rank - 1) Fail("the axis is that of real and imaginary parts");
  Transform t;
  t.inverse = c.Int("inverse", 0) != 0;
  const bool onesided = c.Int("onesided", 0) != 0;
  t.half_spectrum = onesided && t.inverse;
  t.parts_in = dims.back();
  const int64_t have = dims[static_cast<size_t>(axis)];
  if (c.Has(1)) {
    t.length = Length(c, 1, "dft_length");
  } else {
    t.length = t.half_spectrum ? 2 * (have - 1) : have;
  }
  if (t.length < 1) Fail(fmt::format("a transform of length {}", t.length));
  if (onesided && t.parts_in != (t.inverse ? 2 : 1)) {
    Fail(t.inverse ? "onesided inverse transforms take complex input"
                   : "onesided transforms take real input");
  }
  const int64_t half = t.length / 2 + 1;
  t.inputs = t.half_spectrum ? half : t.length;
  t.outputs = onesided && !t.inverse ? half : t.length;
  t.parts_out = t.half_spectrum ? 1 : 2;
  Dims perm;
  for (int d = 0; d < rank; ++d) {
    if (d != axis && d != rank - 1) perm.push_back(d);
  }
  perm.push_back(axis);
  perm.push_back(rank - 1);
  Dims back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  const ValueId x = FitLength(c, c.b().Transpose(c.In(0), perm), t.inputs);
  c.Out(0, c.b().Transpose(Apply(c, x, t), back));
}

void Stft(NodeContext& c) {
  const Dims dims = c.Shape(0);
  if (dims.size() < 2 || dims.size() > 3) Fail("the signal must have rank 2 or 3");
  const int64_t parts = dims.size() == 3 ? dims[2] : 1;
  if (parts != 1 && parts != 2) Fail("the last dim of the signal must be 1 or 2");
  const int64_t step = Length(c, 1, "frame_step");
  int64_t length = 0;
  if (c.Has(3)) {
    length = Length(c, 3, "frame_length");
  } else if (c.Has(2)) {
    length = c.Type(2).elements();
  } else {
    Fail("one of window and frame_length must be given");
  }
  if (c.Has(2) && c.Shape(2) != Dims{length}) {
    Fail(fmt::format("window {} does not fit frames of {}", FormatDims(c.Shape(2)), length));
  }
  if (length < 1 || length > dims[1]) {
    Fail(fmt::format("frames of {} in a signal of {}", length, dims[1]));
  }
  const bool onesided = c.Int("onesided", 1) != 0;
  if (onesided && parts == 2) Fail("onesided transforms take real input");
  const int64_t frames = (dims[1] - length) / step + 1;
  CheckDims({frames, length});
  // Element i of frame f is element f * step + i of the signal.
  const Dims grid = {frames, length};
  const ValueId index =
      c.MapValues({Iota(c, grid, 0), Iota(c, grid, 1)}, [&](ExprBuilder& e, Args a) {
        const int start = e.Binary(ScalarOp::kMul, a[0], e.ConstantInt(DType::kI64, step));
        return e.Binary(ScalarOp::kAdd, start, a[1]);
      });
  const ValueId signal = c.Reshape(c.In(0), {dims[0], dims[1], parts});
  ValueId framed = c.Add1("gather", {signal, index}, {{"axis", int64_t{1}}});
  if (c.Has(2)) {
    const ValueId window = c.b().Broadcast(c.In(2), c.b().type(framed).dims, {2});
    framed = c.b().Binary(ScalarOp::kMul, framed, window);
  }
  Transform t;
  t.length = t.inputs = length;
  t.outputs = onesided ? length / 2 + 1 : length;
  t.parts_in = parts;
  c.Out(0, Apply(c, framed, t));
}

// Triangles on the mel scale (O'Shaughnessy: 2595 log10(1 + f / 700)), in f64, rounded at the end.
void MelWeightMatrix(NodeContext& c) {
  const int64_t mels = Length(c, 0, "num_mel_bins");
  const int64_t length = Length(c, 1, "dft_length");
  const int type = static_cast<int>(c.Int("output_datatype", 1));
  const std::optional<DType> dtype = DTypeFromOnnx(type);
  if (!dtype.has_value())
    Refuse(RefusalOfElementType(type), "output_datatype " + OnnxTypeName(type));
  const Dims dims = {length / 2 + 1, mels};
  CheckDims(dims);
  std::vector<ValueId> operands = {Iota(c, dims, 0), Iota(c, dims, 1)};
  for (int i = 2; i < 5; ++i) {
    if (c.Type(i).elements() != 1) Fail(fmt::format("operand {} must be a scalar", i));
    operands.push_back(c.BroadcastTo(c.b().Cast(DType::kF64, c.Reshape(c.In(i), {})), dims));
  }
  c.Out(0, c.MapValues(operands, [&](ExprBuilder& e, Args a) {
    const DType real = DType::kF64;
    auto number = [&](double v) { return e.Constant(real, v); };
    auto binary = [&](ScalarOp op, int x, int y) { return e.Binary(op, x, y); };
    auto mel = [&](int hertz) {
      const int ratio = binary(ScalarOp::kDiv, hertz, number(700));
      const int log = e.Unary(ScalarOp::kLog, binary(ScalarOp::kAdd, number(1), ratio));
      return binary(ScalarOp::kMul, number(2595 / std::numbers::ln10), log);
    };
    const int low = mel(a[3]);
    const int step = binary(ScalarOp::kDiv, binary(ScalarOp::kSub, mel(a[4]), low),
                            number(static_cast<double>(mels + 2)));
    // Spectrum bin of corner i + shift.
    auto bin = [&](int shift) {
      const int i = binary(ScalarOp::kAdd, e.Cast(real, a[1]), number(shift));
      const int m = binary(ScalarOp::kAdd, binary(ScalarOp::kMul, i, step), low);
      const int power = binary(ScalarOp::kPow, number(10), binary(ScalarOp::kDiv, m, number(2595)));
      const int hertz =
          binary(ScalarOp::kMul, number(700), binary(ScalarOp::kSub, power, number(1)));
      const int scaled = binary(ScalarOp::kMul, number(static_cast<double>(length + 1)), hertz);
      return e.Unary(ScalarOp::kFloor, binary(ScalarOp::kDiv, scaled, a[2]));
    };
    const int left = bin(0);
    const int center = bin(1);
    const int right = bin(2);
    const int j = e.Cast(real, a[0]);
    const int rise = binary(ScalarOp::kSub, center, left);
    const int fall = binary(ScalarOp::kSub, right, center);
    auto both = [&](int x, int y) { return binary(ScalarOp::kAnd, x, y); };
    const int flat = binary(ScalarOp::kEq, rise, number(0));
    const int rising = both(binary(ScalarOp::kGe, j, left), binary(ScalarOp::kLe, j, center));
    const int up = e.Select(
        flat, e.Select(binary(ScalarOp::kEq, j, center), number(1), number(0)),
        e.Select(rising, binary(ScalarOp::kDiv, binary(ScalarOp::kSub, j, left), rise), number(0)));
    const int falling = both(binary(ScalarOp::kGe, j, center), binary(ScalarOp::kLt, j, right));
    const int down = binary(ScalarOp::kDiv, binary(ScalarOp::kSub, right, j), fall);
    return e.Cast(*dtype, e.Select(falling, down, up));
  }));
}

}  // namespace

void RegisterSignalImporters(ImportTable& t) {
  t.Add({"DFT", 17, 20, Dft, "dot with a constant matrix; long lengths by their factors", {1, 2}});
  t.Add({"STFT", 17, 17, Stft, "gather, map and dot with a constant matrix", {1, 3}});
  t.Add({"MelWeightMatrix",
         17,
         17,
         MelWeightMatrix,
         "iota and map",
         {0, 1},
         {},
         "its result counts spectrum bins"});
}

}  // namespace hyper::onnx_frontend
