// Convolution and its two adjoints. x is N C spatial, w is O I/groups spatial. The three are
// bilinear and closed under differentiation: each gradient is one of the other two.
#include <algorithm>
#include <array>

#include "ir/node_check.h"
#include "ir/ops/common.h"
#include "ir/ops/window.h"

namespace hyper::ir {
namespace {

constexpr std::array<std::string_view, 5> kShared = {"strides", "pads_low", "pads_high",
                                                     "dilations", "groups"};

// Output dims of a convolution of x with w; `x_name` and `w_name` are for messages.
Result<Dims> ConvDims(const Dims& x, const Dims& w, const Attributes& a, const std::string& x_name,
                      const std::string& w_name) {
  if (x.size() < 3) {
    return InvalidArgument(x_name + " has rank " + std::to_string(x.size()) +
                           ", expected N, C and at least one spatial dim");
  }
  if (w.size() != x.size()) {
    return InvalidArgument(w_name + " has rank " + std::to_string(w.size()) + ", expected " +
                           std::to_string(x.size()) + " as " + x_name);
  }
  const int64_t groups = a.Int("groups");
  HYPER_RETURN_IF_ERROR(ExpectEach("groups", {groups}, 1));
  HYPER_RETURN_IF_ERROR(ExpectAtMost("groups", {groups}, int64_t{1} << 32));
  HYPER_RETURN_IF_ERROR(ExpectAtMost("dims of " + w_name, w, int64_t{1} << 30));
  if (w[1] * groups != x[1]) {
    return InvalidArgument("dim 1 of " + w_name + " is " + std::to_string(w[1]) + ", with " +
                           std::to_string(groups) + " groups that needs " +
                           std::to_string(w[1] * groups) + " channels, but dim 1 of " + x_name +
                           " is " + std::to_string(x[1]));
  }
  if (w[0] % groups != 0) {
    return InvalidArgument("dim 0 of " + w_name + " is " + std::to_string(w[0]) +
                           ", expected a multiple of the " + std::to_string(groups) + " groups");
  }
  HYPER_ASSIGN_OR_RETURN(const Dims spatial, WindowOutput(Spatial(x), Spatial(w), a, 2));
  return WithSpatial({x[0], w[0]}, spatial);
}

Status ExpectSameFloat(Types in) {
  HYPER_RETURN_IF_ERROR(ExpectFloat(in, 0));
  return ExpectDType(in, 1, in[0].dtype, "as input 0");
}

InferResult InferConv(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectSameFloat(in));
  HYPER_ASSIGN_OR_RETURN(Dims y, ConvDims(in[0].dims, in[1].dims, a, "input 0", "input 1"));
  return std::vector<TensorType>{{in[0].dtype, y}};
}

InferResult InferConvGradInput(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectSameFloat(in));
  const Dims& shape = a.GetDims("input_shape");
  HYPER_RETURN_IF_ERROR(CheckType({in[0].dtype, shape}).WithContext("input_shape"));
  HYPER_ASSIGN_OR_RETURN(const Dims y, ConvDims(shape, in[1].dims, a, "input_shape", "input 1"));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 0, y, "the output of conv on input_shape"));
  return std::vector<TensorType>{{in[0].dtype, shape}};
}

InferResult InferConvGradWeight(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectSameFloat(in));
  const Dims& shape = a.GetDims("weight_shape");
  HYPER_RETURN_IF_ERROR(CheckType({in[0].dtype, shape}).WithContext("weight_shape"));
  HYPER_ASSIGN_OR_RETURN(const Dims y, ConvDims(in[1].dims, shape, a, "input 1", "weight_shape"));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 0, y, "the output of conv with weight_shape"));
  return std::vector<TensorType>{{in[0].dtype, shape}};
}

ValueId Conv(const GradientContext& c, ValueId x, ValueId w) {
  return c.builder.Add1("conv", {x, w}, Keep(c.node.attributes, kShared));
}

ValueId ConvGradInput(const GradientContext& c, ValueId g, ValueId w, ValueId x_like) {
  Attributes a = Keep(c.node.attributes, kShared);
  a.Set("input_shape", c.builder.type(x_like).dims);
  return c.builder.Add1("conv_grad_input", {g, w}, std::move(a));
}

ValueId ConvGradWeight(const GradientContext& c, ValueId g, ValueId x, ValueId w_like) {
  Attributes a = Keep(c.node.attributes, kShared);
  a.Set("weight_shape", c.builder.type(w_like).dims);
  return c.builder.Add1("conv_grad_weight", {g, x}, std::move(a));
}

Status ConvGradient(const GradientContext& c) {
  const ValueId x = c.node.inputs[0];
  const ValueId w = c.node.inputs[1];
  const ValueId g = c.output_grads[0];
  if (c.wanted[0]) c.input_grads[0] = ConvGradInput(c, g, w, x);
  if (c.wanted[1]) c.input_grads[1] = ConvGradWeight(c, g, x, w);
  return Status::Ok();
}

// With cotangent t: <t, grad_input(g, w)> = <conv(t, w), g>.
Status ConvGradInputGradient(const GradientContext& c) {
  const ValueId g = c.node.inputs[0];
  const ValueId w = c.node.inputs[1];
  const ValueId t = c.output_grads[0];
  if (c.wanted[0]) c.input_grads[0] = Conv(c, t, w);
  if (c.wanted[1]) c.input_grads[1] = ConvGradWeight(c, g, t, w);
  return Status::Ok();
}

// With cotangent t: <t, grad_weight(g, x)> = <conv(x, t), g>.
Status ConvGradWeightGradient(const GradientContext& c) {
  const ValueId g = c.node.inputs[0];
  const ValueId x = c.node.inputs[1];
  const ValueId t = c.output_grads[0];
  if (c.wanted[0]) c.input_grads[0] = Conv(c, x, t);
  if (c.wanted[1]) c.input_grads[1] = ConvGradInput(c, g, t, x);
  return Status::Ok();
}

struct ConvLetters {
  std::string x, w, y;
  std::string channels_in;  // reduced or replicated
  bool depthwise;
};

// n batch, o output channels, i input channels; windowed dims stay whole. With several groups
// channels are split only when every channel is a group of its own.
ConvLetters LettersOf(int spatial_rank, int64_t groups, int64_t weight_out, int64_t weight_in) {
  ConvLetters l;
  std::string xs, ws, ys;
  for (int d = 0; d < spatial_rank; ++d) {
    xs += static_cast<char>('A' + 3 * d);
    ws += static_cast<char>('B' + 3 * d);
    ys += static_cast<char>('C' + 3 * d);
  }
  l.depthwise = groups > 1 && weight_in == 1 && weight_out == groups;
  if (l.depthwise) {
    l = {"nc" + xs, "ci" + ws, "nc" + ys, "i", true};
  } else if (groups > 1) {
    l = {"nc" + xs, "oi" + ws, "no" + ys, "coi", false};
  } else {
    l = {"ni" + xs, "oi" + ws, "no" + ys, "i", false};
  }
  return l;
}

// Which of x, w, y the two inputs and the output are.
enum class Operand { kX, kW, kY };

ShardingRule ConvSharding(Operand first, Operand second, Operand result) {
  return ShardingFunction([=](Types in, Types out, const Attributes& a) {
    const TensorType& w = first == Operand::kW ? in[0] : second == Operand::kW ? in[1] : out[0];
    const ConvLetters l = LettersOf(in[0].rank() - 2, a.Int("groups"), w.dims[0], w.dims[1]);
    auto letters = [&](Operand o) { return o == Operand::kX ? l.x : o == Operand::kW ? l.w : l.y; };
    ShardingFactors f;
    f.inputs = {letters(first), letters(second)};
    f.outputs = {letters(result)};
    for (char c : l.x + l.w + l.y) {
      const bool spatial = c >= 'A' && c <= 'Z';
      const bool fixed =
          spatial || (a.Int("groups") > 1 && l.channels_in.find(c) != std::string::npos);
      const bool reduced = f.outputs[0].find(c) == std::string::npos;
      std::string& list = fixed ? f.replicated : f.reduced;
      if ((fixed || reduced) && list.find(c) == std::string::npos) list += c;
    }
    return f;
  });
}

// Where channels of several groups are cut, every channel is a group: a rank has as many groups as
// output channels.
LocalizeFunction LocalConv(Operand first, Operand second, std::string_view shape) {
  return [=, name = std::string(shape)](const Attributes& a, Types in, Types out) {
    const TensorType& w = first == Operand::kW ? in[0] : second == Operand::kW ? in[1] : out[0];
    Attributes local = a;
    local.Set("groups", std::min(a.Int("groups"), std::max(w.dims[0], int64_t{1})));
    if (!name.empty()) local.Set(name, out[0].dims);
    return local;
  };
}

// Two operations per tap, output element and input channel of its group: the same for all three.
CostFunction ConvCost(Operand first, Operand second) {
  return [=](Types in, Types out, const Attributes&) {
    auto find = [&](Operand o) -> const TensorType& {
      return first == o ? in[0] : second == o ? in[1] : out[0];
    };
    const TensorType& w = find(Operand::kW);
    const double taps =
        w.dims[0] == 0 ? 0 : static_cast<double>(w.elements()) / static_cast<double>(w.dims[0]);
    return MemoryCost(in, out, 2 * taps * static_cast<double>(find(Operand::kY).elements()));
  };
}

std::vector<AttributeDef> ConvAttributes() {
  return Extend(WindowAttributes(),
                {{"groups", AttributeKind::kInt, "channel groups", Attribute(int64_t{1})}});
}

// The record of one of the three: `result` = op(`first`, `second`). The adjoints name their
// result's dims in the attribute `shape`.
OpDef ConvOp(std::string_view name, Operand first, Operand second, Operand result,
             std::string_view shape = {}) {
  OpDef def;
  def.name = name;
  def.family = "convolution";
  def.min_inputs = def.max_inputs = 2;
  def.attributes = ConvAttributes();
  if (!shape.empty()) {
    def.attributes = Extend(std::move(def.attributes),
                            {{shape, AttributeKind::kDims, "dims of the result", std::nullopt}});
  }
  def.sharding = ConvSharding(first, second, result);
  def.localize = LocalConv(first, second, shape);
  def.cost = ConvCost(first, second);
  def.saved = SavedForBackward{{0, 1}, {}};
  def.in_place = std::vector<InPlaceRule>{};
  def.cpu_kernels = {"onednn.conv", "generated", "reference"};
  return def;
}

}  // namespace

void RegisterConvolutionOps(OpRegistry& registry) {
  OpDef conv = ConvOp("conv", Operand::kX, Operand::kW, Operand::kY);
  conv.summary =
      "y[n,o,p] = sum over i, k of x[n,i,p*stride + k*dilation - pad] * w[o,i,k]: "
      "cross-correlation without bias";
  conv.infer = InferConv;
  conv.gradient = GradientFunction(ConvGradient);
  registry.Add(std::move(conv));

  OpDef input = ConvOp("conv_grad_input", Operand::kY, Operand::kW, Operand::kX, "input_shape");
  input.summary = "adjoint of conv in x, applied to g: transposed convolution to input_shape";
  input.infer = InferConvGradInput;
  input.gradient = GradientFunction(ConvGradInputGradient);
  registry.Add(std::move(input));

  OpDef weight = ConvOp("conv_grad_weight", Operand::kY, Operand::kX, Operand::kW, "weight_shape");
  weight.summary = "adjoint of conv in w, applied to g: correlates x with g";
  weight.infer = InferConvGradWeight;
  weight.gradient = GradientFunction(ConvGradWeightGradient);
  weight.accumulates = true;
  registry.Add(std::move(weight));
}

}  // namespace hyper::ir
