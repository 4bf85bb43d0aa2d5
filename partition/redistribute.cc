#include "partition/redistribute.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

namespace hyper::partition {

std::string_view StepKindName(StepKind kind) {
  switch (kind) {
    case StepKind::kSlice: return "slice";
    case StepKind::kAllGather: return "all_gather";
    case StepKind::kReduceScatter: return "reduce_scatter";
    case StepKind::kAllReduce: return "all_reduce";
    case StepKind::kAllToAll: return "all_to_all";
    case StepKind::kPermute: return "permute";
  }
  return "?";
}

double StepSeconds(StepKind kind, int64_t group, int64_t slice_bytes, const LinkCost& link) {
  if (group <= 1 || kind == StepKind::kSlice) return 0;
  const double p = static_cast<double>(group);
  const double v = static_cast<double>(slice_bytes);
  double sent = v;  // kPermute
  switch (kind) {
    case StepKind::kAllGather: sent = (p - 1) * v; break;
    case StepKind::kReduceScatter:
    case StepKind::kAllToAll: sent = (p - 1) / p * v; break;
    case StepKind::kAllReduce: sent = 2 * (p - 1) / p * v; break;
    default: break;
  }
  return link.latency_seconds * (1 + std::ceil(std::log2(p))) + sent / link.bytes_per_second;
}

namespace {

// The steps that lead out of one layout.
class Moves {
 public:
  Moves(const Mesh& mesh, std::span<const int64_t> extents, int64_t element_bytes,
        const LinkCost& link, const Layout& from, const Layout& to)
      : mesh_(mesh), extents_(extents), element_bytes_(element_bytes), link_(link) {
    // An axis that is free at both ends stays so: cutting by it and gathering again gains nothing
    // that the path without it has not.
    for (AxisId axis = 0; axis < mesh.rank_of_mesh(); ++axis) {
      if (!from.IsFree(axis) || !to.IsFree(axis)) used_.push_back(axis);
    }
  }

  std::vector<Step> From(const Layout& layout) {
    steps_.clear();
    slice_bytes_ = element_bytes_;
    for (const int64_t extent : LocalExtents(mesh_, layout, extents_)) slice_bytes_ *= extent;
    Combine(layout);
    for (int d = 0; d < static_cast<int>(layout.dims.size()); ++d) {
      const std::vector<AxisId>& axes = layout.dims[static_cast<size_t>(d)];
      for (size_t keep = 0; keep < axes.size(); ++keep) Join(layout, d, keep);
      Reorder(layout, d);
      for (const AxisId axis : used_) {
        if (!layout.IsFree(axis)) continue;
        Layout after = layout;
        after.dims[static_cast<size_t>(d)].push_back(axis);
        Add(StepKind::kSlice, {axis}, d, -1, Partial::kNone, std::move(after));
      }
    }
    Exchange(layout);
    return std::move(steps_);
  }

 private:
  void Add(StepKind kind, std::vector<AxisId> axes, int dim, int from_dim, Partial reduction,
           Layout after) {
    for (size_t d = 0; d < extents_.size(); ++d) {
      if (extents_[d] % Parts(mesh_, after, static_cast<int>(d)) != 0) return;
    }
    Step step{kind, std::move(axes), dim, from_dim, reduction, std::move(after)};
    const int64_t group = mesh_.Size(step.axes);
    step.payload_bytes = kind == StepKind::kSlice || group == 1 ? 0 : slice_bytes_;
    step.seconds = StepSeconds(kind, group, slice_bytes_, link_);
    steps_.push_back(std::move(step));
  }

  // Partial axes of one kind, any number of them at once.
  void Combine(const Layout& layout) {
    std::vector<AxisId> partial;
    for (const AxisId axis : used_) {
      if (layout.partial[static_cast<size_t>(axis)] != Partial::kNone) partial.push_back(axis);
    }
    for (size_t subset = 1; subset < size_t{1} << partial.size(); ++subset) {
      std::vector<AxisId> axes;
      for (size_t i = 0; i < partial.size(); ++i) {
        if (subset >> i & 1) axes.push_back(partial[i]);
      }
      const Partial kind = layout.partial[static_cast<size_t>(axes[0])];
      Layout whole = layout;
      bool same = true;
      for (const AxisId axis : axes) {
        same = same && layout.partial[static_cast<size_t>(axis)] == kind;
        whole.partial[static_cast<size_t>(axis)] = Partial::kNone;
      }
      if (!same) continue;
      Add(StepKind::kAllReduce, axes, -1, -1, kind, whole);
      do {
        for (size_t d = 0; d < whole.dims.size(); ++d) {
          Layout after = whole;
          after.dims[d].insert(after.dims[d].end(), axes.begin(), axes.end());
          Add(StepKind::kReduceScatter, axes, static_cast<int>(d), -1, kind, std::move(after));
        }
      } while (std::next_permutation(axes.begin(), axes.end()));
    }
  }

  // The axes of dim `d` behind the first `keep`: gathered, or moved to another dim.
  void Join(const Layout& layout, int d, size_t keep) {
    const std::vector<AxisId>& axes = layout.dims[static_cast<size_t>(d)];
    const std::vector<AxisId> suffix(axes.begin() + static_cast<std::ptrdiff_t>(keep), axes.end());
    Layout joined = layout;
    joined.dims[static_cast<size_t>(d)].resize(keep);
    Add(StepKind::kAllGather, suffix, d, -1, Partial::kNone, joined);
    for (size_t other = 0; other < layout.dims.size(); ++other) {
      if (static_cast<int>(other) == d) continue;
      Layout after = joined;
      after.dims[other].insert(after.dims[other].end(), suffix.begin(), suffix.end());
      Add(StepKind::kAllToAll, suffix, static_cast<int>(other), d, Partial::kNone,
          std::move(after));
    }
  }

  // The same axes of a dim in another order.
  void Reorder(const Layout& layout, int d) {
    const std::vector<AxisId>& axes = layout.dims[static_cast<size_t>(d)];
    std::vector<AxisId> order = axes;
    std::sort(order.begin(), order.end());
    do {
      if (order == axes) continue;
      Layout after = layout;
      after.dims[static_cast<size_t>(d)] = order;
      // Axes at the outside that keep their place take no part.
      std::vector<AxisId> moved(std::mismatch(axes.begin(), axes.end(), order.begin()).first,
                                axes.end());
      Add(StepKind::kPermute, std::move(moved), d, -1, Partial::kNone, std::move(after));
    } while (std::next_permutation(order.begin(), order.end()));
  }

  // Two axes of one size change places, in different dims or one of them free.
  void Exchange(const Layout& layout) {
    for (size_t i = 0; i < used_.size(); ++i) {
      for (size_t j = i + 1; j < used_.size(); ++j) {
        const AxisId a = used_[i];
        const AxisId b = used_[j];
        const int da = layout.DimOf(a);
        const int db = layout.DimOf(b);
        const bool partial = layout.partial[static_cast<size_t>(a)] != Partial::kNone ||
                             layout.partial[static_cast<size_t>(b)] != Partial::kNone;
        if (mesh_.size(a) != mesh_.size(b) || da == db || partial) continue;
        Layout after = layout;
        for (auto& dim : after.dims) {
          for (AxisId& axis : dim) axis = axis == a ? b : axis == b ? a : axis;
        }
        Add(StepKind::kPermute, {a, b}, -1, -1, Partial::kNone, std::move(after));
      }
    }
  }

  const Mesh& mesh_;
  const std::span<const int64_t> extents_;
  const int64_t element_bytes_;
  const LinkCost link_;
  std::vector<AxisId> used_;
  int64_t slice_bytes_ = 0;
  std::vector<Step> steps_;
};

// Less is better.
struct Cost {
  double seconds = 0;
  int steps = 0;
  auto operator<=>(const Cost&) const = default;
};

}  // namespace

Result<std::vector<Step>> CheapestPath(const Mesh& mesh, std::span<const int64_t> extents,
                                       int64_t element_bytes, const Layout& from, const Layout& to,
                                       const LinkCost& link) {
  for (size_t a = 0; a < to.partial.size(); ++a) {
    if (to.partial[a] != Partial::kNone && to.partial[a] != from.partial[a]) {
      return InvalidArgument(
          fmt::format("{} cannot become {}: a value that is whole on axis '{}' "
                      "is not made partial",
                      from.ToString(mesh), to.ToString(mesh), mesh.name(static_cast<AxisId>(a))));
    }
  }
  Moves moves(mesh, extents, element_bytes, link, from, to);
  // Dijkstra (1959); a step that costs nothing still counts as a step.
  std::map<Layout, Cost> best = {{from, {}}};
  std::map<Layout, std::pair<Layout, Step>> reached_by;
  std::set<std::pair<Cost, Layout>> open = {{{}, from}};
  while (!open.empty()) {
    const auto [cost, layout] = *open.begin();
    open.erase(open.begin());
    if (layout == to) {
      std::vector<Step> path;
      for (Layout at = to; at != from;) {
        auto& [before, step] = reached_by.at(at);
        path.push_back(step);
        at = before;
      }
      std::reverse(path.begin(), path.end());
      return path;
    }
    for (Step& step : moves.From(layout)) {
      const Cost next{cost.seconds + step.seconds, cost.steps + 1};
      const auto known = best.find(step.after);
      if (known != best.end() && !(next < known->second)) continue;
      if (known != best.end()) open.erase({known->second, step.after});
      best[step.after] = next;
      open.insert({next, step.after});
      const Layout after = step.after;
      reached_by[after] = {layout, std::move(step)};
    }
  }
  return Internal(fmt::format("no path from {} to {}", from.ToString(mesh), to.ToString(mesh)));
}

}  // namespace hyper::partition
