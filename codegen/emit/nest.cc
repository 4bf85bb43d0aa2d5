#include "codegen/emit/nest.h"
#include "ir/op_def.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace hyper::codegen {
namespace {

size_t Index(ir::ValueId v) { return static_cast<size_t>(v.index); }

// Spreads known axes along map, reduce and broadcast nodes until nothing changes.
bool Propagate(Nest& nest, std::vector<bool>& known) {
  const ir::Function& body = *nest.body;
  bool changed = false;
  const auto set = [&](ir::ValueId v, std::vector<int> axes) {
    if (known[Index(v)]) return;
    nest.axes_of[Index(v)] = std::move(axes);
    known[Index(v)] = true;
    changed = true;
  };
  for (ir::NodeId id : body.order()) {
    const ir::Node& node = body.node(id);
    const std::string_view op = node.op->name;
    if (op == "map") {
      std::vector<ir::ValueId> group = node.inputs;
      group.push_back(node.outputs[0]);
      const auto it =
          std::find_if(group.begin(), group.end(), [&](ir::ValueId v) { return known[Index(v)]; });
      if (it == group.end()) continue;
      const std::vector<int> axes = nest.axes_of[Index(*it)];
      for (ir::ValueId v : group) set(v, axes);
    } else if (op == "reduce") {
      if (!known[Index(node.inputs[0])]) continue;
      const std::vector<int>& in = nest.axes_of[Index(node.inputs[0])];
      const ir::Dims& reduced = node.attributes.GetDims("axes");
      std::vector<int> kept;
      for (size_t d = 0; d < in.size(); ++d) {
        if (std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(d)) == reduced.end()) {
          kept.push_back(in[d]);
        }
      }
      set(node.outputs[0], kept);
    } else if (op == "broadcast") {
      if (!known[Index(node.outputs[0])]) continue;
      const std::vector<int>& out = nest.axes_of[Index(node.outputs[0])];
      std::vector<int> axes;
      for (int64_t d : node.attributes.GetDims("dims")) {
        axes.push_back(out[static_cast<size_t>(d)]);
      }
      set(node.inputs[0], axes);
    }
  }
  return changed;
}

void AddStream(Nest& nest, const std::vector<int>& axes, const ir::Dims& strides) {
  ir::Dims row(nest.space.size(), 0);
  for (size_t d = 0; d < axes.size(); ++d) row[static_cast<size_t>(axes[d])] = strides[d];
  nest.stream_strides.push_back(std::move(row));
  ++nest.streams;
}

AxisSet SetOf(const std::vector<int>& axes) {
  AxisSet set = 0;
  for (int a : axes) set |= AxisSet{1} << a;
  return set;
}

void ComputeDepends(Nest& nest) {
  const ir::Function& body = *nest.body;
  const auto varies = [&](int stream) {
    AxisSet set = 0;
    for (size_t a = 0; a < nest.space.size(); ++a) {
      if (nest.stream_strides[static_cast<size_t>(stream)][a] != 0 && nest.space[a] != 1) {
        set |= AxisSet{1} << a;
      }
    }
    return set;
  };
  for (size_t i = 0; i < body.arguments().size(); ++i) {
    nest.depends[Index(body.arguments()[i].value)] = varies(static_cast<int>(i));
  }
  for (ir::NodeId id : body.order()) {
    const ir::Node& node = body.node(id);
    AxisSet set = 0;
    for (ir::ValueId v : node.inputs) set |= nest.depends[Index(v)];
    const size_t out = Index(node.outputs[0]);
    if (nest.stream_of_node[out] >= 0) set |= varies(nest.stream_of_node[out]);
    if (node.op->name == "reduce") set = nest.set_of[out];
    nest.depends[out] = set;
  }
}

}  // namespace

bool Nest::IsPartial(int result) const {
  const ir::ValueId v = body->results()[static_cast<size_t>(result)].value;
  return operand(reads() + result).view.type.rank() == body->type(v).rank() + 1;
}

Result<Nest> AnalyzeNest(const ir::Function& body, const std::vector<lower::Operand>& operands) {
  Nest nest;
  nest.body = &body;
  nest.operands = &operands;
  const size_t values = static_cast<size_t>(body.value_count());
  if (operands.size() != body.arguments().size() + body.results().size()) {
    return Internal(fmt::format("fused group has {} operands for {} arguments and {} results",
                                operands.size(), body.arguments().size(), body.results().size()));
  }
  nest.axes_of.resize(values);
  nest.argument_of.assign(values, -1);
  nest.stream_of_node.assign(values, -1);
  nest.depends.assign(values, 0);
  std::vector<bool> known(values, false);
  // The iteration space is the shape of the values of highest rank. Random keys (i64[3]) and other
  // side inputs do not belong to it.
  std::vector<bool> side(values, false);
  for (ir::NodeId id : body.order()) {
    if (body.node(id).op->name == "random_uniform") side[Index(body.node(id).inputs[0])] = true;
  }
  int rank = -1;
  for (size_t v = 0; v < values; ++v) {
    const ir::TensorType& type = body.type(ir::ValueId{static_cast<int32_t>(v)});
    if (!side[v] && type.rank() > rank) {
      rank = type.rank();
      nest.space = type.dims;
    }
  }
  if (rank > 31) return Unimplemented("a fused group over more than 31 axes");
  for (size_t v = 0; v < values; ++v) {
    if (side[v] || body.type(ir::ValueId{static_cast<int32_t>(v)}).rank() != rank) continue;
    nest.axes_of[v].resize(static_cast<size_t>(rank));
    std::iota(nest.axes_of[v].begin(), nest.axes_of[v].end(), 0);
    known[v] = true;
  }
  while (Propagate(nest, known)) {
  }
  for (size_t v = 0; v < values; ++v) {
    const int r = body.type(ir::ValueId{static_cast<int32_t>(v)}).rank();
    if (!known[v] && r > 0 && !side[v]) return Internal("fused group with an unconnected value");
    nest.set_of.push_back(SetOf(nest.axes_of[v]));
  }
  for (size_t i = 0; i < body.arguments().size(); ++i) {
    const size_t v = Index(body.arguments()[i].value);
    nest.argument_of[v] = static_cast<int>(i);
    AddStream(nest, nest.axes_of[v], side[v] ? ir::Dims() : operands[i].view.strides);
  }
  for (size_t i = 0; i < body.results().size(); ++i) {
    ir::Dims strides = operands[body.arguments().size() + i].view.strides;
    if (nest.IsPartial(static_cast<int>(i))) strides.erase(strides.begin());
    AddStream(nest, nest.axes_of[Index(body.results()[i].value)], strides);
  }
  for (ir::NodeId id : body.order()) {
    const ir::Node& node = body.node(id);
    const size_t out = Index(node.outputs[0]);
    if (node.op->name != "iota" && node.op->name != "random_uniform") continue;
    nest.stream_of_node[out] = nest.streams;
    ir::Dims strides(nest.axes_of[out].size(), 0);
    if (const ir::Attribute* given = node.attributes.Find("index_strides")) {
      strides = std::get<ir::Dims>(*given);
    } else if (node.op->name == "iota") {
      strides[static_cast<size_t>(node.attributes.Int("axis"))] = 1;
    } else {
      strides = ir::RowMajorStrides(body.type(node.outputs[0]).dims);
    }
    AddStream(nest, nest.axes_of[out], strides);
  }
  ComputeDepends(nest);
  return nest;
}

std::vector<int> AxesByStride(const Nest& nest) {
  std::vector<int> order(nest.space.size());
  std::iota(order.begin(), order.end(), 0);
  // Bytes per step, weighted by how much of the traffic the operand is.
  std::vector<std::pair<int64_t, int>> streams;
  for (size_t i = 0; i < nest.operands->size(); ++i) {
    int64_t elements = 1;
    for (size_t a = 0; a < nest.space.size(); ++a) {
      if (nest.stream_strides[i][a] != 0) elements *= std::max<int64_t>(nest.space[a], 1);
    }
    // Among equals the written operand decides.
    streams.emplace_back(elements * 2 + (static_cast<int>(i) >= nest.reads() ? 1 : 0),
                         static_cast<int>(i));
  }
  std::stable_sort(streams.begin(), streams.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  const auto before = [&](int a, int b) {
    for (const auto& [weight, s] : streams) {
      const auto& strides = nest.stream_strides[static_cast<size_t>(s)];
      const int64_t sa = std::abs(strides[static_cast<size_t>(a)]);
      const int64_t sb = std::abs(strides[static_cast<size_t>(b)]);
      if (sa != 0 && sb != 0 && sa != sb) return sa > sb;
    }
    return false;
  };
  // Insertion sort: the relation is not transitive where operands broadcast along different axes.
  for (size_t i = 1; i < order.size(); ++i) {
    for (size_t j = i; j > 0 && before(order[j], order[j - 1]); --j)
      std::swap(order[j], order[j - 1]);
  }
  return order;
}

std::vector<Loop> MakeLoops(const Nest& nest, const std::vector<int>& axes) {
  std::vector<Loop> loops;
  for (int a : axes) {
    Loop loop{nest.space[static_cast<size_t>(a)], AxisSet{1} << a, {}};
    if (loop.extent == 1) continue;
    for (int s = 0; s < nest.streams; ++s) {
      loop.strides.push_back(nest.stream_strides[static_cast<size_t>(s)][static_cast<size_t>(a)]);
    }
    bool merged = false;
    if (!loops.empty()) {
      Loop& last = loops.back();
      merged = true;
      for (size_t s = 0; s < loop.strides.size() && merged; ++s) {
        merged = last.strides[s] == loop.strides[s] * loop.extent;
      }
      if (merged) {
        last.extent *= loop.extent;
        last.axes |= loop.axes;
        last.strides = loop.strides;
      }
    }
    if (!merged) loops.push_back(std::move(loop));
  }
  return loops;
}

std::string OffsetText(const std::vector<Loop>& loops, const std::vector<std::string>& indices,
                       int stream) {
  std::string text;
  for (size_t i = 0; i < loops.size(); ++i) {
    const int64_t stride = loops[i].strides[static_cast<size_t>(stream)];
    if (stride == 0) continue;
    if (!text.empty()) text += " + ";
    text += stride == 1 ? indices[i] : fmt::format("{} * {}", indices[i], stride);
  }
  return text.empty() ? "0" : text;
}

}  // namespace hyper::codegen
