#include "codegen/emit/loops.h"

#include <fmt/format.h>

#include <algorithm>

#include "lower/view.h"

namespace hyper::codegen {

Names NumberedNames(const std::string& prefix, size_t n) {
  Names names;
  for (size_t i = 0; i < n; ++i) names.push_back(fmt::format("{}{}", prefix, i));
  return names;
}

std::string At(const std::vector<lower::Operand>& operands, size_t operand, const Names& index) {
  const ir::Dims& strides = operands[operand].view.strides;
  std::string text;
  for (size_t d = 0; d < strides.size(); ++d) {
    if (strides[d] == 0) continue;
    if (!text.empty()) text += " + ";
    text += strides[d] == 1 ? fmt::format("({})", index[d])
                            : fmt::format("({}) * {}", index[d], strides[d]);
  }
  return fmt::format("p{}[{}]", operand, text.empty() ? "0" : text);
}

std::string OpenUnits(const ir::Dims& extents, const Names& names) {
  int64_t units = 1;
  for (int64_t e : extents) units *= e;
  std::string text = fmt::format(
      "  for (i64 u = hy_lo({0}, task, tasks), u_end = hy_lo({0}, task + 1, tasks); u < u_end; "
      "++u) "
      "{{\n",
      units);
  int64_t inside = units;
  for (size_t d = 0; d < extents.size(); ++d) {
    inside = extents[d] == 0 ? 1 : inside / extents[d];
    text += fmt::format("    const i64 {} = u / {} % {}; (void){};\n", names[d],
                        std::max<int64_t>(inside, 1), std::max<int64_t>(extents[d], 1), names[d]);
  }
  return text;
}

std::vector<size_t> FarToNear(const lower::View& view) {
  std::vector<size_t> order;
  for (int d : lower::OrderOf(view)) order.push_back(static_cast<size_t>(d));
  return order;
}

}  // namespace hyper::codegen
