// Kernels for ops that are not fused: library calls, single-op generated kernels, copies into
// joined buffers.
#include <fmt/format.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/op_def.h"
#include "lower/lowering.h"
#include "lower/view.h"

namespace hyper::lower {

using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

std::string FormOf(std::string_view op) {
  if (op == "max_pool" || op == "avg_pool" || op == "max_pool_grad" || op == "avg_pool_grad") {
    return "pool";
  }
  if (op == "gather" || op == "gather_elements" || op == "scatter_add" ||
      op == "scatter_add_elements" || op == "scatter_elements" || op == "reverse" || op == "pad") {
    return "index";
  }
  if (op == "cumsum" || op == "cumprod" || op == "top_k" || op == "arg_reduce") return "scan";
  if (op == "det" || op == "det_grad") return "matrix";
  if (op == "dot" || op == "conv" || op == "conv_grad_input" || op == "conv_grad_weight") {
    return "contraction";
  }
  return {};
}

bool ChannelsLast(const View& v) {
  std::vector<int> order = {0};
  for (int d = 2; d < v.type.rank(); ++d) order.push_back(d);
  order.push_back(1);
  View wanted = DenseViewInOrder(v.type, order);
  wanted.offset = v.offset;
  return SameElements(v, wanted);
}

// What a matmul library takes for one operand: distinct addresses, one of the last two groups of
// letters contiguous, each group (batch dims apart) with one stride.
struct LetterGroups {
  std::string batch, free, contracted;  // in the operand's own dim order
};

bool Collapses(const View& v, const std::string& letters, const std::string& group,
               int64_t* inner_stride) {
  int64_t expected = -1;
  *inner_stride = 0;
  bool first = true;
  for (size_t k = group.size(); k-- > 0;) {
    const size_t d = letters.find(group[k]);
    if (v.type.dims[d] == 1) continue;
    if (first) {
      *inner_stride = v.strides[d];
      first = false;
    } else if (v.strides[d] != expected) {
      return false;
    }
    expected = v.strides[d] * v.type.dims[d];
  }
  if (first) *inner_stride = 1;
  return true;
}

bool MatmulTakes(const View& v, const std::string& letters, const std::string& rows,
                 const std::string& columns) {
  int64_t a = 0, b = 0;
  for (size_t d = 0; d < v.strides.size(); ++d) {
    // A broadcast row or column has no leading dimension.
    if (v.strides[d] == 0 && v.type.dims[d] > 1) return false;
  }
  return Collapses(v, letters, rows, &a) && Collapses(v, letters, columns, &b) &&
         (a == 1 || b == 1);
}

}  // namespace

Operand FunctionLowering::Out(ValueId v, const Place& place) const {
  return {place.root, place.view, accumulates_[I(v)] ? Access::kAccumulate : Access::kWrite};
}

void FunctionLowering::AddOp(LoweredOp op, const Node& node) {
  op.source = node.source;
  op.role = node.role;
  if (op.bytes_moved == 0) op.bytes_moved = OperandBytes(op.operands);
  if (op.flops == 0 && node.op->cost) {
    std::vector<ir::TensorType> in, out;
    for (ValueId v : node.inputs) in.push_back(f_.type(v));
    for (ValueId v : node.outputs) out.push_back(f_.type(v));
    op.flops = node.op->cost(in, out, node.attributes).flops;
  }
  out_.ops.push_back(std::move(op));
}

Status FunctionLowering::AddLibraryOp(LoweredOp op, const Node& node) {
  if (options_.workspace) {
    HYPER_ASSIGN_OR_RETURN(const int64_t bytes,
                           options_.workspace(std::get<LibraryKernel>(op.kernel), op.operands));
    if (bytes > 0) {
      const ir::TensorType type{ir::DType::kU8, {bytes}};
      const Place place = NewRoot(type, DenseView(type), "%workspace");
      op.operands.push_back({place.root, place.view, Access::kWorkspace});
    }
  }
  AddOp(std::move(op), node);
  return {};
}

Status FunctionLowering::EmitSingle(NodeId id) {
  const Node& node = f_.node(id);
  const std::string_view op = node.op->name;
  Status status;
  if (op == "constant") {
    const RootId root = roots_.Constant(node.attributes.Tensor("value"));
    Record(node.outputs[0], {root, DenseView(f_.type(node.outputs[0]))});
    return {};
  }
  const bool single = !node.outputs.empty() && f_.type(node.outputs[0]).dtype == ir::DType::kF32;
  if (op == "accumulate")
    status = EmitAccumulate(node);
  else if (op == "concat")
    status = EmitConcat(node);
  else if (op == "dot" && single && f_.type(node.inputs[0]).elements() > 0 &&
           f_.type(node.inputs[1]).elements() > 0 && f_.type(node.outputs[0]).elements() > 0) {
    status = EmitDot(node);
  } else if (FormOf(op) == "contraction" && op != "dot" && single) {
    status = EmitConv(node);
  } else if (op == "pad" && node.attributes.String("mode") == "constant") {
    status = EmitPad(node);
  } else if (const std::string form = FormOf(op); !form.empty()) {
    status = EmitGenerated(node, form);
  } else {
    out_.unfused.push_back(
        fmt::format("{} ({}): no generated kernel, reference kernel used", op, node.source));
    status = EmitReference(id);
  }
  HYPER_RETURN_IF_ERROR(status);
  EmitMarkers(node);
  return {};
}

Status FunctionLowering::EmitDot(const Node& node) {
  const std::string& spec = node.attributes.String("spec");
  const size_t comma = spec.find(','), arrow = spec.find("->");
  const std::string a = spec.substr(0, comma), b = spec.substr(comma + 1, arrow - comma - 1);
  const std::string y = spec.substr(arrow + 2);
  const auto in = [](const std::string& s, char c) { return s.find(c) != std::string::npos; };
  std::string m, n, k;  // free of a, free of b (in the output's order), contracted
  for (char c : y) {
    if (in(a, c) && !in(b, c)) m += c;
    if (in(b, c) && !in(a, c)) n += c;
  }
  for (char c : a)
    if (in(b, c) && !in(y, c)) k += c;
  HYPER_ASSIGN_OR_RETURN(Place pa, PlaceOf(node.inputs[0]));
  HYPER_ASSIGN_OR_RETURN(Place pb, PlaceOf(node.inputs[1]));
  if (!MatmulTakes(pa.view, a, m, k)) {
    HYPER_ASSIGN_OR_RETURN(pa, CopyTo(pa, DenseView(pa.view.type), "%dot.a"));
  }
  if (!MatmulTakes(pb.view, b, k, n)) {
    HYPER_ASSIGN_OR_RETURN(pb, CopyTo(pb, DenseView(pb.view.type), "%dot.b"));
  }
  // Operands whose letters do not group even when dense go to the generated contraction.
  const bool fits = MatmulTakes(pa.view, a, m, k) && MatmulTakes(pb.view, b, k, n);
  const ValueId out = node.outputs[0];
  const Place py = OutputPlace(out);
  const bool direct = MatmulTakes(py.view, y, m, n);
  const View dense = DenseView(py.view.type);
  if (!fits || (!direct && (accumulates_[I(out)] || !MatmulTakes(dense, y, m, n)))) {
    return EmitGenerated(node, "contraction");
  }
  const Place target = direct ? py : NewRoot(py.view.type, dense, "%dot.y");
  LoweredOp op;
  op.kernel = LibraryKernel{"onednn.matmul", "dot", node.attributes};
  op.operands = {Read(pa), Read(pb), Out(out, target)};
  HYPER_RETURN_IF_ERROR(AddLibraryOp(std::move(op), node));
  if (!direct) EmitCopy(target, py);
  return {};
}

Status FunctionLowering::EmitConv(const Node& node) {
  const std::string_view name = node.op->name;
  std::vector<Operand> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    // Weights stay row-major, activations and their gradients channels-last.
    const bool weight = i == 1 && name != "conv_grad_weight";
    Place p;
    if (weight) {
      HYPER_ASSIGN_OR_RETURN(p, RowMajor(node.inputs[i]));
    } else {
      HYPER_ASSIGN_OR_RETURN(p, PlaceOf(node.inputs[i]));
      if (!ChannelsLast(p.view)) {
        std::vector<int> order = {0};
        for (int d = 2; d < p.view.type.rank(); ++d) order.push_back(d);
        order.push_back(1);
        HYPER_ASSIGN_OR_RETURN(p, CopyTo(p, DenseViewInOrder(p.view.type, order),
                                         fmt::format("%{}.channels_last", node.inputs[i].index)));
      }
    }
    operands.push_back(Read(p));
  }
  const ValueId out = node.outputs[0];
  const Place place = OutputPlace(out);
  View at_zero = place.view;
  at_zero.offset = 0;
  const bool direct = name == "conv_grad_weight" ? IsRowMajor(at_zero) : ChannelsLast(place.view);
  if (!direct && accumulates_[I(out)]) return EmitGenerated(node, "contraction");
  Place target = place;
  if (!direct) {
    std::vector<int> order(place.view.strides.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(d);
    if (name != "conv_grad_weight") {
      std::rotate(order.begin() + 1, order.begin() + 2, order.end());
    }
    target = NewRoot(place.view.type, DenseViewInOrder(place.view.type, order), "%conv.y");
  }
  operands.push_back(Out(out, target));
  LoweredOp op;
  op.kernel = LibraryKernel{"onednn.conv", std::string(name), node.attributes};
  op.operands = std::move(operands);
  HYPER_RETURN_IF_ERROR(AddLibraryOp(std::move(op), node));
  if (!direct) EmitCopy(target, place);
  return {};
}

Status FunctionLowering::EmitConcat(const Node& node) {
  const ValueId y = node.outputs[0];
  const Place whole = OutputPlace(y);
  const size_t axis = static_cast<size_t>(node.attributes.Int("axis"));
  int64_t at = 0;
  for (ValueId x : node.inputs) {
    ir::Dims starts(whole.view.strides.size(), 0), limits = whole.view.type.dims;
    const ir::Dims ones(starts.size(), 1);
    starts[axis] = at;
    at += f_.type(x).dims[axis];
    limits[axis] = at;
    const Place piece{whole.root, SliceView(whole.view, starts, limits, ones)};
    HYPER_ASSIGN_OR_RETURN(const Place from, PlaceOf(x));
    if (from.root != piece.root || !SameElements(from.view, piece.view)) EmitCopy(from, piece);
  }
  return {};
}

// Fill, then copy the inside.
Status FunctionLowering::EmitPad(const Node& node) {
  const auto& a = node.attributes;
  const Place y = OutputPlace(node.outputs[0]);
  GeneratedKernel fill;
  fill.form = "map";
  ir::Builder b(&fill.body);
  ir::Dims dims, strides;
  for (size_t d = 0; d < y.view.strides.size(); ++d) {
    if (y.view.type.dims[d] == 1) continue;
    dims.push_back(y.view.type.dims[d]);
    strides.push_back(y.view.strides[d]);
  }
  const ir::DType dtype = y.view.type.dtype;
  const ValueId value = b.Broadcast(b.ScalarConstant(dtype, a.Float("value")), dims, {});
  fill.body.AddResult(value, "");
  LoweredOp op;
  op.operands = {{y.root, {{dtype, dims}, strides, y.view.offset}, Access::kWrite}};
  fill.lower_bound_bytes = OperandBytes(op.operands);
  op.kernel = std::move(fill);
  AddOp(std::move(op), node);
  HYPER_ASSIGN_OR_RETURN(Place x, PlaceOf(node.inputs[0]));
  const ir::Dims &low = a.GetDims("low"), &interior = a.GetDims("interior");
  Place target = y;
  for (size_t d = 0; d < low.size(); ++d) {
    const int64_t step = interior[d] + 1, extent = y.view.type.dims[d];
    // Input index i lands on low + i * step: keep those inside.
    const int64_t first = low[d] >= 0 ? 0 : (-low[d] + step - 1) / step;
    int64_t last = extent > low[d] ? (extent - low[d] + step - 1) / step : 0;
    last = std::min(last, x.view.type.dims[d]);
    const int64_t count = std::max<int64_t>(last - first, 0);
    if (count > 0) {
      x.view.offset += first * x.view.strides[d];
      target.view.offset += (low[d] + first * step) * y.view.strides[d];
    }
    x.view.type.dims[d] = target.view.type.dims[d] = count;
    target.view.strides[d] = y.view.strides[d] * step;
  }
  if (x.view.type.elements() > 0) EmitCopy(x, target);
  return {};
}

// The value was added by its own producer, or is added here.
Status FunctionLowering::EmitAccumulate(const Node& node) {
  const ValueId y = node.outputs[0], sum = node.inputs[0], term = node.inputs[1];
  HYPER_ASSIGN_OR_RETURN(const Place from, PlaceOf(sum));
  const Place to = OutputPlace(y);
  if (from.root != to.root || !SameElements(from.view, to.view)) EmitCopy(from, to);
  if (accumulates_[I(a_.Base(term))]) return {};
  HYPER_ASSIGN_OR_RETURN(const Place value, PlaceOf(term));
  EmitCopy(value, to);
  Operand& out = out_.ops.back().operands[1];
  out.access = Access::kAccumulate;
  out_.ops.back().bytes_moved = OperandBytes(out_.ops.back().operands);
  std::get<GeneratedKernel>(out_.ops.back().kernel).lower_bound_bytes = out_.ops.back().bytes_moved;
  return {};
}

Status FunctionLowering::EmitGenerated(const Node& node, const std::string& form) {
  GeneratedKernel kernel;
  kernel.form = form;
  LoweredOp op;
  std::vector<ValueId> inputs;
  std::vector<ir::TensorType> types;
  for (ValueId v : node.inputs) {
    HYPER_ASSIGN_OR_RETURN(const Place p, PlaceOf(v));
    op.operands.push_back(Read(p));
    inputs.push_back(kernel.body.AddArgument(f_.type(v), ir::ArgumentKind::kInput, ""));
  }
  for (ValueId v : node.outputs) types.push_back(f_.type(v));
  const NodeId id = kernel.body.AddNode(node.op, inputs, node.attributes, types);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    kernel.body.AddResult(kernel.body.node(id).outputs[i], "");
    op.operands.push_back(Out(node.outputs[i], OutputPlace(node.outputs[i])));
  }
  op.bytes_moved = OperandBytes(op.operands);
  // Only the rows that the indices name are touched.
  const std::string_view name = node.op->name;
  if (name == "gather" || name == "gather_elements") {
    op.bytes_moved += f_.type(node.outputs[0]).bytes() - f_.type(node.inputs[0]).bytes();
  } else if ((name == "scatter_add" || name == "scatter_add_elements") &&
             accumulates_[I(node.outputs[0])]) {
    op.bytes_moved += 2 * (f_.type(node.inputs[1]).bytes() - f_.type(node.outputs[0]).bytes());
  }
  op.bytes_moved = std::max<int64_t>(op.bytes_moved, 0);
  kernel.lower_bound_bytes = op.bytes_moved;
  op.kernel = std::move(kernel);
  AddOp(std::move(op), node);
  return {};
}

Status FunctionLowering::EmitReference(NodeId id) {
  const Node& node = f_.node(id);
  LoweredOp op;
  op.kernel = ReferenceKernel{std::string(node.op->name), node.attributes, node.op_id};
  for (ValueId v : node.inputs) {
    HYPER_ASSIGN_OR_RETURN(const Place p, RowMajor(v));
    op.operands.push_back(Read(p));
  }
  std::vector<std::pair<Place, Place>> copies;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId v = node.outputs[i];
    const Place place = OutputPlace(v);
    View at_zero = place.view;
    at_zero.offset = 0;
    Place target = place;
    if (!IsRowMajor(at_zero)) {
      if (accumulates_[I(v)]) return Internal("reference kernel cannot add to a strided buffer");
      target = NewRoot(place.view.type, DenseView(place.view.type), "%reference.y");
      copies.emplace_back(target, place);
    }
    op.operands.push_back(Out(v, target));
  }
  AddOp(std::move(op), node);
  for (const auto& [from, to] : copies) EmitCopy(from, to);
  return {};
}

}  // namespace hyper::lower
