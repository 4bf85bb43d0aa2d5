#include "ir/ops/common.h"

#include <algorithm>

#include "base/strings.h"

namespace hyper::ir {
namespace {

std::string Input(Types in, int i) {
  return "input " + std::to_string(i) + " is " + in[static_cast<size_t>(i)].ToString();
}

}  // namespace

Status ExpectRank(Types in, int i, int rank) {
  if (in[static_cast<size_t>(i)].rank() == rank) return Status::Ok();
  return InvalidArgument(Input(in, i) + " of rank " +
                         std::to_string(in[static_cast<size_t>(i)].rank()) + ", expected rank " +
                         std::to_string(rank));
}

Status ExpectMinRank(Types in, int i, int rank) {
  if (in[static_cast<size_t>(i)].rank() >= rank) return Status::Ok();
  return InvalidArgument(Input(in, i) + " of rank " +
                         std::to_string(in[static_cast<size_t>(i)].rank()) + ", expected rank " +
                         std::to_string(rank) + " or more");
}

Status ExpectDim(Types in, int i, int dim, int64_t expected, std::string_view why) {
  const int64_t actual = in[static_cast<size_t>(i)].dims[static_cast<size_t>(dim)];
  if (actual == expected) return Status::Ok();
  return InvalidArgument("dim " + std::to_string(dim) + " of input " + std::to_string(i) + " is " +
                         std::to_string(actual) + ", expected " + std::to_string(expected) + " (" +
                         std::string(why) + ")");
}

Status ExpectDims(Types in, int i, const Dims& expected, std::string_view why) {
  HYPER_RETURN_IF_ERROR(ExpectRank(in, i, static_cast<int>(expected.size())));
  for (size_t d = 0; d < expected.size(); ++d) {
    HYPER_RETURN_IF_ERROR(ExpectDim(in, i, static_cast<int>(d), expected[d], why));
  }
  return Status::Ok();
}

Status ExpectFloat(Types in, int i) {
  if (IsFloat(in[static_cast<size_t>(i)].dtype)) return Status::Ok();
  return InvalidArgument(Input(in, i) + ", expected a float type (f32, f64, f16, bf16)");
}

Status ExpectNumeric(Types in, int i) {
  if (in[static_cast<size_t>(i)].dtype != DType::kBool) return Status::Ok();
  return InvalidArgument(Input(in, i) + ", expected a number type");
}

Status ExpectIndex(Types in, int i) {
  const DType t = in[static_cast<size_t>(i)].dtype;
  if (t == DType::kI32 || t == DType::kI64) return Status::Ok();
  return InvalidArgument(Input(in, i) + ", expected i32 or i64");
}

Status ExpectDType(Types in, int i, DType dtype, std::string_view why) {
  if (in[static_cast<size_t>(i)].dtype == dtype) return Status::Ok();
  return InvalidArgument(Input(in, i) + ", expected element type " + std::string(DTypeName(dtype)) +
                         " (" + std::string(why) + ")");
}

Status ExpectAxis(std::string_view name, int64_t axis, int rank) {
  if (axis >= 0 && axis < rank) return Status::Ok();
  return InvalidArgument(std::string(name) + " is " + std::to_string(axis) + ", expected 0 to " +
                         std::to_string(rank - 1) + " for rank " + std::to_string(rank));
}

Status ExpectAxes(std::string_view name, const Dims& axes, int rank) {
  for (size_t i = 0; i < axes.size(); ++i) {
    HYPER_RETURN_IF_ERROR(ExpectAxis(name, axes[i], rank));
    if (std::count(axes.begin(), axes.end(), axes[i]) > 1) {
      return InvalidArgument(std::string(name) + " " + FormatDims(axes) + " names dim " +
                             std::to_string(axes[i]) + " twice");
    }
  }
  return Status::Ok();
}

Status ExpectEntries(std::string_view name, const Dims& values, int count) {
  if (static_cast<int>(values.size()) == count) return Status::Ok();
  return InvalidArgument(std::string(name) + " " + FormatDims(values) + " has " +
                         std::to_string(values.size()) + " entries, expected " +
                         std::to_string(count));
}

Status ExpectEach(std::string_view name, const Dims& values, int64_t minimum) {
  for (size_t d = 0; d < values.size(); ++d) {
    if (values[d] >= minimum) continue;
    return InvalidArgument("entry " + std::to_string(d) + " of " + std::string(name) + " is " +
                           std::to_string(values[d]) + ", expected at least " +
                           std::to_string(minimum));
  }
  return Status::Ok();
}

Status ExpectAtMost(std::string_view name, const Dims& values, int64_t maximum) {
  for (size_t d = 0; d < values.size(); ++d) {
    if (values[d] <= maximum) continue;
    return InvalidArgument("entry " + std::to_string(d) + " of " + std::string(name) + " is " +
                           std::to_string(values[d]) + ", expected at most " +
                           std::to_string(maximum));
  }
  return Status::Ok();
}

Status ExpectOneOf(std::string_view name, const std::string& value,
                   std::initializer_list<std::string_view> allowed) {
  std::vector<std::string> names;
  for (std::string_view a : allowed) {
    if (value == a) return Status::Ok();
    names.emplace_back(a);
  }
  return InvalidArgument(std::string(name) + " is '" + value + "', expected one of " +
                         Join(names, ", "));
}

Dims Without(const Dims& dims, int64_t axis) {
  Dims out = dims;
  out.erase(out.begin() + axis);
  return out;
}

Dims With(const Dims& dims, int64_t axis, int64_t extent) {
  Dims out = dims;
  out[static_cast<size_t>(axis)] = extent;
  return out;
}

Dims Sequence(int64_t n, int64_t first) {
  Dims out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = first + i;
  return out;
}

bool Contains(const Dims& values, int64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

OpCost MemoryCost(Types in, Types out, double flops) {
  OpCost cost{flops, 0};
  for (const TensorType& t : in) cost.bytes += static_cast<double>(t.bytes());
  for (const TensorType& t : out) cost.bytes += static_cast<double>(t.bytes());
  return cost;
}

CostFunction ElementCost(double flops_per_element, bool of_input) {
  return [=](Types in, Types out, const Attributes&) {
    const TensorType& t = of_input ? in[0] : out[0];
    return MemoryCost(in, out, flops_per_element * static_cast<double>(t.elements()));
  };
}

std::string Letters::Next(int64_t count) {
  constexpr int kAlphabet = 26;
  std::string out;
  for (int64_t i = 0; i < count; ++i, ++used_) {
    // a..z, A..Z, then whatever is left of the character set: ranks are at most 64.
    if (used_ < kAlphabet) {
      out += static_cast<char>('a' + used_);
    } else if (used_ < 2 * kAlphabet) {
      out += static_cast<char>('A' + used_ - kAlphabet);
    } else {
      out += static_cast<char>(128 + used_ - 2 * kAlphabet);
    }
  }
  return out;
}

ShardingFactors PassThrough(Types in, Types out, const Dims& replicated_axes) {
  ShardingFactors f;
  const std::string letters = Letters().Next(out[0].rank());
  f.inputs.assign(in.size(), letters);
  f.outputs.assign(out.size(), letters);
  for (int64_t axis : replicated_axes) f.replicated += letters[static_cast<size_t>(axis)];
  return f;
}

LocalizeFunction LocalShape(std::string name) {
  return [name = std::move(name)](const Attributes& a, Types, Types out) {
    Attributes local = a;
    local.Set(name, out[0].dims);
    return local;
  };
}

ValueId BroadcastOver(Builder& b, ValueId v, const Dims& shape, const Dims& axes) {
  Dims kept;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    if (!Contains(axes, d)) kept.push_back(d);
  }
  return b.Broadcast(v, shape, kept);
}

ValueId Scale(Builder& b, ValueId v, double factor) {
  return b.BinaryConstant(ScalarOp::kMul, v, factor);
}

ValueId AddMaybe(Builder& b, ValueId x, ValueId y) {
  if (!x.valid()) return y;
  if (!y.valid()) return x;
  return b.Binary(ScalarOp::kAdd, x, y);
}

}  // namespace hyper::ir
