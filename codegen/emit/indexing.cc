// Template "index": gather and scatter families, reverse, edge and reflect padding. An index
// outside its axis reads NaN (0 for integers) and adds nowhere: never a wild access.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codegen/emit/loops.h"
#include "ir/op_def.h"

namespace hyper::codegen {
namespace {

constexpr int64_t kBlock = 64;  // elements of a scatter column block

std::string Outside(ir::DType dtype) {
  return ir::IsFloat(dtype) ? FloatLiteral(dtype, NAN) : IntLiteral(dtype, 0);
}

// Walk over the output with its nearest dim as the inner loop; `index` names its dims.
struct Walk {
  std::string open;
  size_t inner = 0;
  bool has_inner = false;
};
Walk OpenWalk(const lower::View& view, const Names& index) {
  Walk walk;
  std::vector<size_t> order = FarToNear(view);
  ir::Dims extents;
  Names names;
  for (size_t k = 0; k + 1 < order.size(); ++k) {
    extents.push_back(view.type.dims[order[k]]);
    names.push_back(index[order[k]]);
  }
  walk.open = OpenUnits(extents, names);
  if (!order.empty()) {
    walk.inner = order.back();
    walk.has_inner = true;
  }
  return walk;
}
std::string InnerLoop(const Walk& walk, const lower::View& view, const Names& index) {
  if (!walk.has_inner) return "    {\n";
  return fmt::format("#pragma GCC ivdep\n    for (i64 {0} = 0; {0} < {1}; ++{0}) {{\n",
                     index[walk.inner], view.type.dims[walk.inner]);
}
std::string FixIndex(const std::string& name, const std::string& load, int64_t extent) {
  return fmt::format("      i64 {0} = (i64){1}; {0} = {0} < 0 ? {0} + {2} : {0};\n", name, load,
                     extent);
}

std::string Gather(const ir::Node& node, const std::vector<lower::Operand>& operands,
                   bool elements) {
  const lower::View &x = operands[0].view, &y = operands[2].view;
  const size_t axis = static_cast<size_t>(node.attributes.Int("axis"));
  const size_t index_rank = operands[1].view.strides.size();
  const Names i = NumberedNames("i", y.strides.size());
  Names at_index, at_x;
  if (elements) {
    at_index = i;
    at_x = i;
    at_x[axis] = "t";
  } else {
    at_index.assign(i.begin() + static_cast<long>(axis),
                    i.begin() + static_cast<long>(axis + index_rank));
    at_x.assign(i.begin(), i.begin() + static_cast<long>(axis));
    at_x.push_back("t");
    at_x.insert(at_x.end(), i.begin() + static_cast<long>(axis + index_rank), i.end());
  }
  const int64_t extent = x.type.dims[axis];
  const Walk walk = OpenWalk(y, i);
  const bool hoist =
      !elements && walk.has_inner && (walk.inner < axis || walk.inner >= axis + index_rank);
  std::string text = walk.open;
  const std::string load = FixIndex("t", At(operands, 1, at_index), extent);
  if (hoist) text += load;
  text += InnerLoop(walk, y, i);
  if (!hoist) text += load;
  text += fmt::format("      {} = t >= 0 && t < {} ? {} : {};\n    }}\n", At(operands, 2, i),
                      extent, At(operands, 0, at_x), Outside(x.type.dtype));
  return text + CloseUnits();
}

// One column (all positions along the axis for fixed other indices) belongs to one task.
std::string Scatter(const ir::Node& node, const std::vector<lower::Operand>& operands) {
  const lower::View &index = operands[0].view, &y = operands[2].view;
  const size_t axis = static_cast<size_t>(node.attributes.Int("axis"));
  const size_t rank = y.strides.size();
  const Names i = NumberedNames("i", rank);
  const int64_t last = axis + 1 < rank ? y.type.dims[rank - 1] : 1;
  const int64_t blocks = std::max<int64_t>((last + kBlock - 1) / kBlock, 1);
  ir::Dims extents;
  Names names;
  for (size_t d = 0; d < rank; ++d) {
    if (d == axis || (d + 1 == rank && axis + 1 < rank)) continue;
    extents.push_back(y.type.dims[d]);
    names.push_back(i[d]);
  }
  extents.push_back(blocks);
  names.push_back("block");
  std::string text = OpenUnits(extents, names);
  text += fmt::format("    const i64 lo = block * {0}, hi = lo + {0} < {1} ? lo + {0} : {1};\n",
                      kBlock, last);
  const std::string inner = axis + 1 < rank
                                ? fmt::format("for (i64 {0} = lo; {0} < hi; ++{0}) ", i[rank - 1])
                                : std::string("for (i64 one = lo; one < hi; ++one) ");
  if (operands[2].access == lower::Access::kWrite) {
    text += fmt::format("    for (i64 {0} = 0; {0} < {1}; ++{0}) {2}{3} = 0;\n", i[axis],
                        y.type.dims[axis], inner, At(operands, 2, i));
  }
  const Names j = NumberedNames("j", index.strides.size());
  for (size_t d = 0; d < j.size(); ++d) {
    text += fmt::format("    for (i64 {0} = 0; {0} < {1}; ++{0})\n", j[d], index.type.dims[d]);
  }
  Names at_update(i.begin(), i.begin() + static_cast<long>(axis));
  at_update.insert(at_update.end(), j.begin(), j.end());
  at_update.insert(at_update.end(), i.begin() + static_cast<long>(axis) + 1, i.end());
  text += "    {\n" + FixIndex(i[axis], At(operands, 0, j), y.type.dims[axis]);
  text += fmt::format(
      "      if ({0} < 0 || {0} >= {1}) continue;\n#pragma GCC ivdep\n      {2}{3} += {4};\n",
      i[axis], y.type.dims[axis], inner, At(operands, 2, i), At(operands, 1, at_update));
  return text + "    }\n" + CloseUnits();
}

std::string ScatterElements(const ir::Node& node, const std::vector<lower::Operand>& operands) {
  const lower::View &update = operands[1].view, &y = operands[2].view;
  const size_t axis = static_cast<size_t>(node.attributes.Int("axis"));
  const Names i = NumberedNames("i", y.strides.size());
  ir::Dims extents;
  Names names;
  for (size_t d = 0; d < i.size(); ++d) {
    if (d == axis) continue;
    extents.push_back(y.type.dims[d]);
    names.push_back(i[d]);
  }
  std::string text = OpenUnits(extents, names);
  if (operands[2].access == lower::Access::kWrite) {
    text += fmt::format("    for (i64 {0} = 0; {0} < {1}; ++{0}) {2} = 0;\n", i[axis],
                        y.type.dims[axis], At(operands, 2, i));
  }
  std::string guard = "true";
  for (size_t d = 0; d < i.size(); ++d) {
    if (d != axis) guard += fmt::format(" && {} < {}", i[d], update.type.dims[d]);
  }
  Names at = i;
  at[axis] = "j";
  text +=
      fmt::format("    if ({}) for (i64 j = 0; j < {}; ++j) {{\n", guard, update.type.dims[axis]);
  text += FixIndex(i[axis], At(operands, 0, at), y.type.dims[axis]);
  text += fmt::format("      if ({0} >= 0 && {0} < {1}) {2} += {3};\n    }}\n", i[axis],
                      y.type.dims[axis], At(operands, 2, i), At(operands, 1, at));
  return text + CloseUnits();
}

// As above, into a copy of x.
std::string ScatterInto(const ir::Node& node, const std::vector<lower::Operand>& operands) {
  const lower::View &update = operands[2].view, &y = operands[3].view;
  const size_t axis = static_cast<size_t>(node.attributes.Int("axis"));
  const std::string& reduction = node.attributes.String("reduction");
  const Names i = NumberedNames("i", y.strides.size());
  ir::Dims extents;
  Names names;
  std::string guard = "true";
  for (size_t d = 0; d < i.size(); ++d) {
    if (d == axis) continue;
    extents.push_back(y.type.dims[d]);
    names.push_back(i[d]);
    if (update.type.dims[d] < y.type.dims[d]) {
      guard += fmt::format(" && {} < {}", i[d], update.type.dims[d]);
    }
  }
  Names at = i;
  at[axis] = "j";
  const std::string to = At(operands, 3, i);
  const std::string value = At(operands, 2, at);
  std::string text = OpenUnits(extents, names);
  text += fmt::format("    for (i64 {0} = 0; {0} < {1}; ++{0}) {2} = {3};\n", i[axis],
                      y.type.dims[axis], to, At(operands, 0, i));
  text +=
      fmt::format("    if ({}) for (i64 j = 0; j < {}; ++j) {{\n", guard, update.type.dims[axis]);
  text += FixIndex(i[axis], At(operands, 1, at), y.type.dims[axis]);
  text += fmt::format("      if ({0} >= 0 && {0} < {1}) {{ {2} }}\n    }}\n", i[axis],
                      y.type.dims[axis],
                      reduction == "none" ? fmt::format("{} = {};", to, value)
                                          : ReduceStep(reduction, y.type.dtype, to, value));
  return text + CloseUnits();
}

std::string Shuffle(const ir::Node& node, const std::vector<lower::Operand>& operands) {
  const lower::View &x = operands[0].view, &y = operands[1].view;
  const Names i = NumberedNames("i", y.strides.size());
  const Walk walk = OpenWalk(y, i);
  std::string text = walk.open + InnerLoop(walk, y, i);
  Names from = i;
  for (size_t d = 0; d < i.size(); ++d) {
    const int64_t n = x.type.dims[d];
    if (node.op->name == "reverse") {
      const ir::Dims& axes = node.attributes.GetDims("axes");
      if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end()) {
        from[d] = fmt::format("{} - {}", n - 1, i[d]);
      }
      continue;
    }
    const std::string f = fmt::format("f{}", d);
    text += fmt::format("      i64 {} = {} - ({});\n", f, i[d], node.attributes.GetDims("low")[d]);
    if (node.attributes.String("mode") == "edge") {
      text += fmt::format("      {0} = {0} < 0 ? 0 : {0} > {1} ? {1} : {0};\n", f, n - 1);
    } else {
      const int64_t period = std::max<int64_t>(2 * (n - 1), 1);
      text +=
          fmt::format("      {0} = ({0} % {1} + {1}) % {1}; {0} = {0} >= {2} ? {1} - {0} : {0};\n",
                      f, period, n);
    }
    from[d] = f;
  }
  text += fmt::format("      {} = {};\n    }}\n", At(operands, 1, i), At(operands, 0, from));
  return text + CloseUnits();
}

}  // namespace

Result<std::string> EmitIndexing(const lower::GeneratedKernel& kernel,
                                 const std::vector<lower::Operand>& operands) {
  const ir::Node& node = kernel.body.node(kernel.body.order()[0]);
  const std::string head = KernelHead(operands, node.inputs.size());
  const std::string_view op = node.op->name;
  if (op == "gather") return head + Gather(node, operands, false);
  if (op == "gather_elements") return head + Gather(node, operands, true);
  if (op == "scatter_add") return head + Scatter(node, operands);
  if (op == "scatter_add_elements") return head + ScatterElements(node, operands);
  if (op == "scatter_elements") return head + ScatterInto(node, operands);
  return head + Shuffle(node, operands);
}

}  // namespace hyper::codegen
