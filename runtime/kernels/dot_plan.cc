#include "runtime/kernels/dot_plan.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace hyper::runtime {
namespace {

// One letter of the spec, or several collapsed ones; stride 0 where the operand lacks it.
struct Axis {
  int64_t extent = 1;
  std::array<int64_t, 3> strides = {0, 0, 0};  // a, b, y
};

int64_t StrideOf(std::string_view letters, const StridedOperand& operand, char letter) {
  const size_t at = letters.find(letter);
  return at == std::string_view::npos ? 0 : operand.strides[at];
}

// Merges axes whose strides nest in every operand that has them.
std::vector<Axis> Collapse(std::vector<Axis> axes, const std::array<bool, 3>& used, int key) {
  std::erase_if(axes, [](const Axis& axis) { return axis.extent == 1; });
  std::stable_sort(axes.begin(), axes.end(), [key](const Axis& x, const Axis& y) {
    return x.strides[static_cast<size_t>(key)] > y.strides[static_cast<size_t>(key)];
  });
  std::vector<Axis> out;
  for (const Axis& axis : axes) {
    bool merges = !out.empty();
    for (size_t o = 0; o < 3 && merges; ++o) {
      if (used[o] && out.back().strides[o] != axis.extent * axis.strides[o]) merges = false;
    }
    if (merges) {
      const int64_t extent = out.back().extent * axis.extent;
      out.back() = axis;
      out.back().extent = extent;
    } else {
      out.push_back(axis);
    }
  }
  return out;
}

// The axis that becomes the matrix dim: the one with the smallest stride in operand `key` (last
// after sorting), or an axis of extent 1 when the group is empty. The rest goes to the batch.
Axis TakeMatrixAxis(std::vector<Axis>& group, std::vector<Axis>& batch) {
  Axis axis;
  if (!group.empty()) {
    // The largest extent gives the best product; among equals the innermost.
    size_t best = group.size() - 1;
    for (size_t g = 0; g < group.size(); ++g) {
      if (group[g].extent > group[best].extent) best = g;
    }
    axis = group[best];
    group.erase(group.begin() + static_cast<int64_t>(best));
  }
  batch.insert(batch.end(), group.begin(), group.end());
  return axis;
}

}  // namespace

Result<DotPlan> PlanDot(std::string_view spec, const StridedOperand& a, const StridedOperand& b,
                        const StridedOperand& y) {
  const size_t comma = spec.find(',');
  const size_t arrow = spec.find("->");
  if (comma == std::string_view::npos || arrow == std::string_view::npos || comma > arrow) {
    return DataLoss(fmt::format("'{}' is not a dot spec", spec));
  }
  const std::string_view sa = spec.substr(0, comma);
  const std::string_view sb = spec.substr(comma + 1, arrow - comma - 1);
  const std::string_view sy = spec.substr(arrow + 2);
  if (sa.size() != a.dims.size() || sb.size() != b.dims.size() || sy.size() != y.dims.size()) {
    return DataLoss(fmt::format("dot spec '{}' does not fit its operands", spec));
  }

  std::vector<Axis> batch;
  std::vector<Axis> rows;
  std::vector<Axis> columns;
  std::vector<Axis> contracted;
  const auto axis_of = [&](char letter, int64_t extent) {
    return Axis{extent,
                {StrideOf(sa, a, letter), StrideOf(sb, b, letter), StrideOf(sy, y, letter)}};
  };
  for (size_t d = 0; d < sa.size(); ++d) {
    const char letter = sa[d];
    const bool in_b = sb.find(letter) != std::string_view::npos;
    const bool in_y = sy.find(letter) != std::string_view::npos;
    std::vector<Axis>& group = in_b ? (in_y ? batch : contracted) : rows;
    group.push_back(axis_of(letter, a.dims[d]));
  }
  for (size_t d = 0; d < sb.size(); ++d) {
    if (sa.find(sb[d]) == std::string_view::npos) columns.push_back(axis_of(sb[d], b.dims[d]));
  }

  rows = Collapse(std::move(rows), {true, false, true}, 2);
  columns = Collapse(std::move(columns), {false, true, true}, 2);
  contracted = Collapse(std::move(contracted), {true, true, false}, 0);
  if (contracted.size() > 1) {
    return Unimplemented(fmt::format("the contracted dims of '{}' do not collapse into one", spec));
  }
  Axis m = TakeMatrixAxis(rows, batch);
  Axis n = TakeMatrixAxis(columns, batch);
  const Axis k = contracted.empty() ? Axis{} : contracted.front();
  batch = Collapse(std::move(batch), {true, true, true}, 2);

  DotPlan plan;
  plan.k = k.extent;
  plan.swapped = n.strides[2] != 1 && m.strides[2] == 1 && n.extent > 1;
  size_t left = 0;
  size_t right = 1;
  if (plan.swapped) {
    std::swap(m, n);
    std::swap(left, right);
  }
  if (n.extent > 1 && n.strides[2] != 1) {
    return Unimplemented(fmt::format("no matrix dim of the result of '{}' has unit stride", spec));
  }
  const auto operand = [&](size_t which, const Axis& first, const Axis& second) {
    StridedOperand result;
    for (const Axis& axis : batch) {
      // Stride 0 with an extent above 1: the operand is shared by the whole batch.
      const bool shared = axis.strides[which] == 0;
      result.dims.push_back(shared ? 1 : axis.extent);
      result.strides.push_back(axis.strides[which]);
    }
    result.dims.insert(result.dims.end(), {first.extent, second.extent});
    result.strides.insert(result.strides.end(), {first.strides[which], second.strides[which]});
    return result;
  };
  plan.a = operand(left, m, k);
  plan.b = operand(right, k, n);
  plan.y = operand(2, m, n);
  return plan;
}

}  // namespace hyper::runtime
