// Convolution and its two gradients by oneDNN. Activations are used in the layout they lie in;
// weights are reordered into what the library likes best inside the call (its workspace), since
// they change every step.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/kernels/library_plan.h"
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

// The operands' own layouts first, then the library's choice for everything; plain loops only where
// there is nothing else. `make(source, weights, destination)` describes, `plan(desc)` assembles.
template <typename Make, typename Plan>
LibraryPlan Choose(const Tensors& t, int64_t cap, const Make& make, const Plan& plan) {
  PlanChoice choice(cap);
  const auto own = [&]() { return make(t.source, AnyLayout(t.weights), t.destination); };
  const auto any = [&]() {
    return make(AnyLayout(t.source), AnyLayout(t.weights), AnyLayout(t.destination));
  };
  const auto fits_in_own_layouts = [&]() {
    try {
      return choice.Offer(own(), plan);
    } catch (const dnnl::error&) {
      return false;  // these layouts are not implemented
    }
  };
  if (fits_in_own_layouts() || choice.Offer(any(), plan)) return choice.Take();
  return choice.empty() ? plan(any()) : choice.Take();
}

LibraryPlan Forward(const Tensors& t, const Geometry& g, Operands operands, int64_t cap) {
  return Choose(
      t, cap, [&](const auto& s, const auto& w, const auto& d) { return ForwardDesc(g, s, w, d); },
      [&](const dnnl::convolution_forward::primitive_desc& pd) {
        LibraryPlanner planner(operands);
        const auto source = planner.Input(0, t.source, pd.src_desc());
        const auto weights = planner.Input(1, t.weights, pd.weights_desc());
        const auto destination = planner.Output(2, t.destination, pd.dst_desc());
        return planner.Finish(
            [pd] { return dnnl::convolution_forward(pd); },
            {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, destination}},
            pd.scratchpad_desc());
      });
}

LibraryPlan InputGradient(const Tensors& t, const Geometry& g, Operands operands, int64_t cap) {
  // Stepping through implementations looks at the description of the forward pass again.
  dnnl::convolution_forward::primitive_desc hint;
  return Choose(
      t, cap,
      [&](const auto& s, const auto& w, const auto& d) {
        hint = ForwardDesc(g, s, w, d);
        return dnnl::convolution_backward_data::primitive_desc(
            CpuEngine(), dnnl::algorithm::convolution_direct, s, w, d, g.strides, g.dilations,
            g.low, g.high, hint, UserScratchpad());
      },
      [&](const dnnl::convolution_backward_data::primitive_desc& pd) {
        LibraryPlanner planner(operands);
        const auto gradient = planner.Input(0, t.destination, pd.diff_dst_desc());
        const auto weights = planner.Input(1, t.weights, pd.weights_desc());
        const auto source = planner.Output(2, t.source, pd.diff_src_desc());
        return planner.Finish([pd] { return dnnl::convolution_backward_data(pd); },
                              {{DNNL_ARG_DIFF_DST, gradient},
                               {DNNL_ARG_WEIGHTS, weights},
                               {DNNL_ARG_DIFF_SRC, source}},
                              pd.scratchpad_desc());
      });
}

LibraryPlan WeightGradient(const Tensors& t, const Geometry& g, Operands operands, int64_t cap) {
  // Stepping through implementations looks at the description of the forward pass again.
  dnnl::convolution_forward::primitive_desc hint;
  return Choose(
      t, cap,
      [&](const auto& s, const auto& w, const auto& d) {
        hint = ForwardDesc(g, s, w, d);
        return dnnl::convolution_backward_weights::primitive_desc(
            CpuEngine(), dnnl::algorithm::convolution_direct, s, w, d, g.strides, g.dilations,
            g.low, g.high, hint, UserScratchpad());
      },
      [&](const dnnl::convolution_backward_weights::primitive_desc& pd) {
        LibraryPlanner planner(operands);
        const auto gradient = planner.Input(0, t.destination, pd.diff_dst_desc());
        const auto source = planner.Input(1, t.source, pd.src_desc());
        const auto weights = planner.Output(2, t.weights, pd.diff_weights_desc());
        return planner.Finish([pd] { return dnnl::convolution_backward_weights(pd); },
                              {{DNNL_ARG_DIFF_DST, gradient},
                               {DNNL_ARG_SRC, source},
                               {DNNL_ARG_DIFF_WEIGHTS, weights}},
                              pd.scratchpad_desc());
      });
}

}  // namespace

Result<LibraryPlan> PlanConvolution(const std::string& op, const ir::Attributes& attributes,
                                    Operands operands, int64_t cap) {
  if (operands.size() < 3) return DataLoss(fmt::format("{} needs three operands", op));
  const bool has_empty = std::any_of(operands.begin(), operands.begin() + 3,
                                     [](const auto& o) { return TypeOf(o).elements() == 0; });
  if (has_empty) return LibraryPlan{.reference = true};
  Geometry g{attributes.GetDims("strides"), attributes.GetDims("dilations"),
             attributes.GetDims("pads_low"), attributes.GetDims("pads_high")};
  for (int64_t& dilation : g.dilations) --dilation;
  const int64_t groups = attributes.Int("groups");
  if (op == "conv") {
    return Forward({DescOf(operands[0]), GroupedWeights(operands[1], groups), DescOf(operands[2])},
                   g, operands, cap);
  }
  if (op == "conv_grad_input") {
    return InputGradient(
        {DescOf(operands[2]), GroupedWeights(operands[1], groups), DescOf(operands[0])}, g,
        operands, cap);
  }
  if (op == "conv_grad_weight") {
    return WeightGradient(
        {DescOf(operands[1]), GroupedWeights(operands[2], groups), DescOf(operands[0])}, g,
        operands, cap);
  }
  return DataLoss(fmt::format("onednn.conv does not implement '{}'", op));
}

}  // namespace hyper::runtime
