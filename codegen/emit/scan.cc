// Template "scan": walks along one axis with state: cumsum, cumprod, arg_reduce, top_k.
#include <fmt/format.h>

#include "codegen/emit/loops.h"
#include "ir/op_def.h"

namespace hyper::codegen {
namespace {

// Units over all dims of `view` but `axis`.
std::string OpenOthers(const lower::View& view, size_t axis, const Names& index) {
  ir::Dims extents;
  Names names;
  for (size_t d = 0; d < index.size(); ++d) {
    if (d == axis) continue;
    extents.push_back(view.type.dims[d]);
    names.push_back(index[d]);
  }
  return OpenUnits(extents, names);
}

std::string Cumulative(const ir::Node& node, const std::vector<lower::Operand>& operands) {
  const bool product = node.op->name == "cumprod";
  const auto& a = node.attributes;
  const lower::View& x = operands[0].view;
  const size_t axis = static_cast<size_t>(a.Int("axis"));
  Names i = NumberedNames("i", x.strides.size());
  const int64_t n = x.type.dims[axis];
  std::string text = OpenOthers(x, axis, i);
  const std::string type = CType(x.type.dtype);
  text += fmt::format("    {0} total = {0}({1});\n    for (i64 k = 0; k < {2}; ++k) {{\n", type,
                      product ? 1 : 0, n);
  text += fmt::format("      const i64 {} = {};\n", i[axis],
                      a.Bool("reverse") ? fmt::format("{} - k", n - 1) : std::string("k"));
  text += fmt::format("      const {} v = {};\n", type, At(operands, 0, i));
  const std::string write = fmt::format("      {} = total;\n", At(operands, 1, i));
  const std::string step =
      fmt::format("      total = ({})(total {} v);\n", type, product ? '*' : '+');
  text += a.Bool("exclusive") ? write + step : step + write;
  return text + "    }\n" + CloseUnits();
}

std::string ArgReduce(const ir::Node& node, const std::vector<lower::Operand>& operands) {
  const auto& a = node.attributes;
  const lower::View& x = operands[0].view;
  const size_t axis = static_cast<size_t>(a.Int("axis"));
  Names i = NumberedNames("i", x.strides.size());
  Names out = i;
  out.erase(out.begin() + static_cast<long>(axis));
  std::string text = OpenOthers(x, axis, i);
  Names first = i;
  first[axis] = "0";
  const std::string type = CType(x.type.dtype);
  const char* sign = a.String("kind") == "max" ? ">" : "<";
  // A NaN wins over every number.
  text += fmt::format("    {} best = {};\n    int64_t at = 0;\n", type, At(operands, 0, first));
  text += fmt::format("    for (i64 {0} = 1; {0} < {1}; ++{0}) {{\n      const {2} v = {3};\n",
                      i[axis], x.type.dims[axis], type, At(operands, 0, i));
  text += fmt::format("      const bool better = v {0} best || (v != v && best == best){1};\n",
                      sign, a.Bool("last") ? " || v == best || (v != v && best != best)" : "");
  text += fmt::format("      if (better) {{ best = v; at = {}; }}\n    }}\n    {} = at;\n", i[axis],
                      At(operands, 1, out));
  return text + CloseUnits();
}

// Insertion into the sorted list that the outputs hold: k is small.
std::string TopK(const ir::Node& node, const std::vector<lower::Operand>& operands) {
  const auto& a = node.attributes;
  const lower::View& x = operands[0].view;
  const size_t axis = static_cast<size_t>(a.Int("axis"));
  const Names i = NumberedNames("i", x.strides.size());
  const auto slot = [&](size_t operand, const std::string& k) {
    Names at = i;
    at[axis] = k;
    return At(operands, operand, at);
  };
  const std::string type = CType(x.type.dtype);
  std::string text = OpenOthers(x, axis, i);
  text += fmt::format("    i64 held = 0;\n    for (i64 {0} = 0; {0} < {1}; ++{0}) {{\n", i[axis],
                      x.type.dims[axis]);
  text += fmt::format("      const {} v = {};\n      i64 k = held;\n", type, At(operands, 0, i));
  const std::string better =
      a.Bool("largest") ? "v > w || (v != v && w == w)" : "v < w || (w != w && v == v)";
  text += fmt::format(
      "      while (k > 0) {{\n        const {} w = {};\n        if (!({})) break;\n"
      "        if (k < {}) {{ {} = w; {} = {}; }}\n        --k;\n      }}\n",
      type, slot(1, "k - 1"), better, a.Int("k"), slot(1, "k"), slot(2, "k"), slot(2, "k - 1"));
  text +=
      fmt::format("      if (k < {0}) {{ {1} = v; {2} = {3}; if (held < {0}) ++held; }}\n    }}\n",
                  a.Int("k"), slot(1, "k"), slot(2, "k"), i[axis]);
  return text + CloseUnits();
}

}  // namespace

Result<std::string> EmitScan(const lower::GeneratedKernel& kernel,
                             const std::vector<lower::Operand>& operands) {
  const ir::Node& node = kernel.body.node(kernel.body.order()[0]);
  const std::string head = KernelHead(operands, node.inputs.size());
  const std::string_view op = node.op->name;
  if (op == "cumsum" || op == "cumprod") return head + Cumulative(node, operands);
  if (op == "arg_reduce") return head + ArgReduce(node, operands);
  return head + TopK(node, operands);
}

}  // namespace hyper::codegen
