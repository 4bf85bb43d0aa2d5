// Convolution and its two gradients by oneDNN. Activations are used in the layout they lie in;
// weights are reordered into what the library likes best inside the call (scratch memory), since
// they change every step.
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/onednn_assembler.h"
#include "runtime/kernels/onednn_util.h"

namespace hyper::runtime {
namespace {

using dnnl::memory;

struct Geometry {
  ir::Dims strides;
  ir::Dims dilations;  // oneDNN counts the gaps: 0 means dense
  ir::Dims low;
  ir::Dims high;
};

// The three tensors of any convolution; `weights` in oneDNN's grouped form.
struct Tensors {
  memory::desc source;
  memory::desc weights;
  memory::desc destination;
};

memory::desc DescOf(const program::Operand& operand) {
  const ir::Dims dims(operand.dims().begin(), operand.dims().end());
  return StridedF32(
      dims, NormalizedStrides(dims, ir::Dims(operand.strides().begin(), operand.strides().end())));
}

memory::desc GroupedWeights(const program::Operand& operand, int64_t groups) {
  ir::Dims dims(operand.dims().begin(), operand.dims().end());
  ir::Dims strides(operand.strides().begin(), operand.strides().end());
  if (groups > 1) {
    dims[0] /= groups;
    dims.insert(dims.begin(), groups);
    strides.insert(strides.begin(), strides[0] * dims[1]);
  }
  return StridedF32(dims, NormalizedStrides(dims, strides));
}

memory::desc AnyLayout(const memory::desc& desc) {
  return {desc.get_dims(), memory::data_type::f32, memory::format_tag::any};
}

dnnl::convolution_forward::primitive_desc ForwardDesc(const Geometry& g, const memory::desc& source,
                                                      const memory::desc& weights,
                                                      const memory::desc& destination) {
  return {CpuEngine(),
          dnnl::prop_kind::forward_training,
          dnnl::algorithm::convolution_direct,
          source,
          weights,
          destination,
          g.strides,
          g.dilations,
          g.low,
          g.high,
          UserScratchpad()};
}

// Tries the operands' own layouts, then the library's choice for everything.
template <typename Make>
auto Choose(const Tensors& t, const Make& make) {
  const auto own = [&]() { return make(t.source, AnyLayout(t.weights), t.destination); };
  const auto any = [&]() {
    return make(AnyLayout(t.source), AnyLayout(t.weights), AnyLayout(t.destination));
  };
  try {
    auto desc = own();
    if (!IsSlowImplementation(desc.impl_info_str())) return desc;
  } catch (const dnnl::error&) {
    return any();
  }
  return any();
}

std::unique_ptr<PreparedKernel> Forward(const Tensors& t, const Geometry& g, Operands operands,
                                        const PrepareContext& context) {
  const auto pd = Choose(
      t, [&](const auto& s, const auto& w, const auto& d) { return ForwardDesc(g, s, w, d); });
  PrimitiveAssembler assembler(context);
  return assembler.Finish(
      dnnl::convolution_forward(pd),
      {{DNNL_ARG_SRC, assembler.Input(operands[0], t.source, pd.src_desc())},
       {DNNL_ARG_WEIGHTS, assembler.Input(operands[1], t.weights, pd.weights_desc())},
       {DNNL_ARG_DST, assembler.Output(operands[2], t.destination, pd.dst_desc())}},
      pd.scratchpad_desc());
}

std::unique_ptr<PreparedKernel> InputGradient(const Tensors& t, const Geometry& g,
                                              Operands operands, const PrepareContext& context) {
  const auto pd = Choose(t, [&](const auto& s, const auto& w, const auto& d) {
    return dnnl::convolution_backward_data::primitive_desc(
        CpuEngine(), dnnl::algorithm::convolution_direct, s, w, d, g.strides, g.dilations, g.low,
        g.high, ForwardDesc(g, s, w, d), UserScratchpad());
  });
  PrimitiveAssembler assembler(context);
  return assembler.Finish(
      dnnl::convolution_backward_data(pd),
      {{DNNL_ARG_DIFF_DST, assembler.Input(operands[0], t.destination, pd.diff_dst_desc())},
       {DNNL_ARG_WEIGHTS, assembler.Input(operands[1], t.weights, pd.weights_desc())},
       {DNNL_ARG_DIFF_SRC, assembler.Output(operands[2], t.source, pd.diff_src_desc())}},
      pd.scratchpad_desc());
}

std::unique_ptr<PreparedKernel> WeightGradient(const Tensors& t, const Geometry& g,
                                               Operands operands, const PrepareContext& context) {
  const auto pd = Choose(t, [&](const auto& s, const auto& w, const auto& d) {
    return dnnl::convolution_backward_weights::primitive_desc(
        CpuEngine(), dnnl::algorithm::convolution_direct, s, w, d, g.strides, g.dilations, g.low,
        g.high, ForwardDesc(g, s, w, d), UserScratchpad());
  });
  PrimitiveAssembler assembler(context);
  return assembler.Finish(
      dnnl::convolution_backward_weights(pd),
      {{DNNL_ARG_DIFF_DST, assembler.Input(operands[0], t.destination, pd.diff_dst_desc())},
       {DNNL_ARG_SRC, assembler.Input(operands[1], t.source, pd.src_desc())},
       {DNNL_ARG_DIFF_WEIGHTS, assembler.Output(operands[2], t.weights, pd.diff_weights_desc())}},
      pd.scratchpad_desc());
}

}  // namespace

Result<std::unique_ptr<PreparedKernel>> PrepareConvolution(const std::string& op,
                                                           const ir::Attributes& attributes,
                                                           Operands operands,
                                                           const PrepareContext& context) {
  if (operands.size() < 3) return DataLoss(fmt::format("{} needs three operands", op));
  const bool has_empty = std::any_of(operands.begin(), operands.begin() + 3,
                                     [](const auto& o) { return TypeOf(o).elements() == 0; });
  if (has_empty) return PrepareReference(op, attributes, -1, operands, context);
  return Guard([&]() -> Result<std::unique_ptr<PreparedKernel>> {
    Geometry g{attributes.GetDims("strides"), attributes.GetDims("dilations"),
               attributes.GetDims("pads_low"), attributes.GetDims("pads_high")};
    for (int64_t& dilation : g.dilations) --dilation;
    const int64_t groups = attributes.Int("groups");
    if (op == "conv") {
      return Forward(
          {DescOf(operands[0]), GroupedWeights(operands[1], groups), DescOf(operands[2])}, g,
          operands, context);
    }
    if (op == "conv_grad_input") {
      return InputGradient(
          {DescOf(operands[2]), GroupedWeights(operands[1], groups), DescOf(operands[0])}, g,
          operands, context);
    }
    if (op == "conv_grad_weight") {
      return WeightGradient(
          {DescOf(operands[1]), GroupedWeights(operands[2], groups), DescOf(operands[0])}, g,
          operands, context);
    }
    return DataLoss(fmt::format("onednn.conv does not implement '{}'", op));
  });
}

}  // namespace hyper::runtime
